// How the site's search orders pages. Sphinx finds only pages with all words of a question, and orders them by name.
// Here a page needs some of them: a rare word counts more than a common one, and one of a heading, or of KEYWORDS, more
// than one of the text. Guides stand before the API and the internals.

// What readers call things that a page has under other words.
const KEYWORDS = {
  running: "continue crash checkpoint save video film record policy reproducibility grid search",
  python: "load act trained notebook library",
  coming_from: "migrate convert import gym",
  reports: "confidence interval export plot compare latex",
  records: "W&B wandb log logging weights biases",
  opponents: "elo agent multi multiplayer past selves payoff matrix",
  populations: "quality diversity pareto front multi objective objectives lifetime pretrained warm start",
  searches: "hyperparameters tune tuning grid search bayesian",
  cluster: "distributed training parallel multiprocessing",
  learners: "multiple gpus data parallel",
  algorithms: "learning rate schedule recurrent memory policy actor critic",
  off_policy: "replay buffer size experience",
  atari: "frame stacking skip preprocessing pixels",
  worlds: "shaping environment",
  write_a_world: "write custom environment mask masking",
  remote: "external environment unity godot javascript",
  samplers: "attentive prioritized experience replay",
  plugins: "custom algorithm network architecture extend",
  play: "human person keyboard",
  gallery: "pretrained trained policies zoo download",
  balancing: "balance design fairness",
  reproduce: "paper results replicate benchmark",
  vtrace: "vtrace impala",
  evolution: "genetic algorithm evolutionary strategy",
};
const EVOLVER = /^evolvers\/(\w+)$/; // whose page is found by its word after ec=
const HEADING = 3;
const BEHIND = 0.4; // of the API and the internals

// The pages by the words of a map of the index: those with this word, else those with a longer one.
const pagesWith = (map, word) => {
  const exact = Object.hasOwn(map, word) ? [word] : [];
  const words = exact.length || word.length < 3 ? exact : Object.keys(map).filter((other) => other.startsWith(word));
  return new Set(words.flatMap((other) => map[other]));
};

Object.assign(Scorer.objPrio, { 0: 0, 1: 0 }); // the name of an object is no better than a heading
Scorer.score = ([name, , , , score]) => score * (/^(api|architecture|workers|notebooks)\b/.test(name) ? BEHIND : 1);
Search.performTermsSearch = (searchTerms, excludedTerms) => {
  const { terms, titleterms, docnames, filenames, titles } = Search._index;
  const stemmer = new Stemmer();
  const keywords = docnames.map((name) =>
    splitQuery((KEYWORDS[name] ?? EVOLVER.exec(name)?.[1] ?? "").toLowerCase()).map((word) => stemmer.stemWord(word)),
  );
  const scores = docnames.map(() => 0);
  for (const word of searchTerms) {
    const headings = pagesWith(titleterms, word);
    keywords.forEach((words, page) => words.includes(word) && headings.add(page));
    const pages = new Set([...pagesWith(terms, word), ...headings]);
    const rare = Math.log(1 + docnames.length / pages.size);
    for (const page of pages) scores[page] += rare * (headings.has(page) ? HEADING : 1);
  }
  for (const word of excludedTerms) for (const page of pagesWith(terms, word)) scores[page] = 0;
  return docnames
    .map((name, page) => [name, titles[page], "", null, scores[page], filenames[page], SearchResultKind.text])
    .filter(([, , , , score]) => score > 0);
};
