"""The site is built without a warning, shows what its pages promise, and its search finds the page of a question."""

from __future__ import annotations

import importlib.util
import io
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote

import pytest
from browsing import browser, needs_chromium  # noqa: F401
from page_commands import EVOLVERS
from PIL import Image

from evorl.reproduction.kept_policies import find

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), *EVOLVERS]
ALGORITHMS = sorted(path.stem for path in (ROOT / "conf" / "rl").glob("*.yaml"))
FILMS = sorted((DOCS / "images" / "films").iterdir())
QUESTIONS = {
    "resume a run": "running", "stop a run": "running", "evaluate a policy": "running", "GPU": "running",
    "notebook": "python", "load policy act": "python", "pandas": "python",
    "stable-baselines3": "coming_from", "CleanRL": "coming_from",
    "compare groups": "reports", "live report": "reports", "latex table": "reports",
    "W&B": "records", "tensorboard": "records", "energy": "records",
    "self-play": "opponents", "league": "opponents", "rating": "opponents", "Nash averaging": "opponents",
    "payoff matrix": "opponents", "lifetime": "populations", "objectives": "populations", "warm start": "populations",
    "sweeper": "searches", "hyperparameter search": "searches",
    "kubernetes": "cluster", "ray": "cluster", "workers machines": "cluster",
    "write a world": "write_a_world", "gymnasium environment": "write_a_world",
    "openspiel": "worlds", "pettingzoo": "worlds",
    "onnx": "export", "unity": "export", "play against": "play",
    "clipping ppo": "ppo", "rainbow": "dqn", "twin critics": "td3", "attentive": "samplers", "prioritized": "samplers",
    "own algorithm": "plugins", "plugin": "plugins",
    "vtrace": "vtrace", "cma_es": "cma_es", "aes_rl": "aes_rl", "gallery": "gallery", "upgrade": "upgrading",
    "continue training after a crash": "running", "save checkpoints": "running", "record a video": "running",
    "learning rate schedule": "algorithms", "recurrent policy": "algorithms", "multiple GPUs": "learners",
    "custom network architecture": "plugins", "reward shaping": "worlds", "action masking": "write_a_world",
    "frame stacking": "atari", "genetic algorithm": "evolution", "quality diversity": "populations",
    "pareto front": "populations",
    "elo": "opponents", "multi-agent": "opponents", "train against itself": "opponents",
    "confidence intervals": "reports", "export csv": "reports", "early stopping": "searches",
    "grid search": "running", "tune hyperparameters": "searches", "distributed training": "cluster",
    "reproduce a paper": "reproduce", "play as a human": "play", "wandb": "records", "game balance": "balancing",
    "pretrained policies": "gallery", "replay buffer size": "off_policy", "random seed reproducibility": "running",
}  # fmt: skip
"""What a reader types, and the page that is among the first three answers. The keywords of docs/search.js were chosen
with these questions in mind."""
HELD_OUT = {
    "deep q learning": "dqn", "soft actor critic": "sac", "proximal policy optimization": "ppo",
    "importance sampling": "vtrace", "evolution strategies": "evolution", "crossover mutation": "evolution",
    "swarm optimization": "pso", "tournament between agents": "opponents", "skill rating": "opponents",
    "image observations": "atari", "breakout": "atari", "card games": "worlds", "train on a cluster": "cluster",
    "number of CPU cores": "cluster", "crashed worker": "cluster", "android app": "export",
    "plot learning curve": "reports", "statistical significance": "reports", "upload metrics": "records",
    "publish a package": "plugins", "install new version": "upgrading", "memory usage replay": "off_policy",
    "deterministic evaluation": "running", "LSTM": "algorithms",
}  # fmt: skip
"""Questions that no keyword was chosen for: they tell what the search is worth to others."""
FOUND = 17
"""At least so many of `HELD_OUT` are found. To choose keywords for the others takes new questions in their place."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(place / "trees")]
    done = subprocess.run([*command, str(ROOT / "docs"), str(place / "html")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return place / "html"


def conf() -> Any:
    """The module docs/conf.py."""
    made = importlib.util.spec_from_file_location("site_conf", DOCS / "conf.py")
    assert made is not None and made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


def test_a_public_name_without_a_page_is_a_warning() -> None:
    module = conf()
    offered = {*module.offered()}
    assert {"evorl.api.runs.load", "evorl.rl.ppo.PPO", "evorl.ec.generational.Generational"} <= offered
    env = SimpleNamespace(get_domain=lambda name: SimpleNamespace(objects={*offered} - {"evorl.rl.ppo.PPO"}))
    heard: list[tuple[str, ...]] = []
    listener = SimpleNamespace(warning=lambda *words: heard.append(words))
    module.logging = SimpleNamespace(getLogger=lambda name: listener)
    module.warn_of_public_names_without_a_page(None, env)
    assert [words[1] for words in heard] == ["evorl.rl.ppo.PPO"]


@pytest.mark.parametrize(("name", "text", "shown"), [
    ("td3", "[table](../benchmarks/a.md) and [more](dqn.md)", "table (`benchmarks/a.md`) and [more](dqn.md)"),
    ("evolvers/cem", "[table](../../benchmarks/a.md#b), [all](../evolution.md)",
     "table (`benchmarks/a.md`), [all](../evolution.md)"),
    ("evolvers/cem", "![curve](../../benchmarks/a.svg)", "![curve](../../benchmarks/a.svg)"),
])  # fmt: skip
def test_a_link_out_of_the_site_becomes_the_name_of_its_file(name: str, text: str, shown: str) -> None:
    source = [text]
    conf().adapt(SimpleNamespace(env=SimpleNamespace(doc2path=lambda name: Path(f"{name}.md"))), name, source)
    assert source == [shown]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_begins_with_a_picture_or_an_example(page: Path) -> None:
    """Before its second section."""
    beginning = "\n## ".join(page.read_text().split("\n## ")[:2])
    assert re.search(r"^```|!\[", beginning, re.MULTILINE)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_page_of_an_algorithm_shows_its_curve_and_a_film(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text()
    assert re.search(r"!\[[^\]]+\]\(\.\./benchmarks/\w+/results/\w+\.svg\)", text)
    (film,) = re.findall(r"!\[[^\]]+\]\(images/films/([\w-]+)\.gif\)", text)
    assert f"`{film.replace('-', '/', 1)}`" in text


@pytest.mark.parametrize("page", EVOLVERS, ids=lambda page: page.stem)
def test_a_film_on_the_page_of_an_evolver_is_of_a_policy_that_the_page_names(page: Path) -> None:
    text = page.read_text()
    for film in re.findall(r"!\[[^\]]+\]\(\.\./images/films/([\w-]+)\.gif\)", text):
        assert f"`{film.replace('-', '/', 1)}`" in text


@pytest.mark.parametrize("film", FILMS, ids=lambda film: film.stem)
def test_the_gallery_shows_a_film_of_a_kept_policy(film: Path) -> None:
    policy = film.stem.replace("-", "/", 1)
    text = (DOCS / "gallery.md").read_text()
    assert find(policy).name == policy and f"(images/films/{film.name})" in text and f"`{policy}`" in text
    with Image.open(film) as picture:
        assert getattr(picture, "n_frames", 1) > 10
    assert film.stat().st_size < 200_000


@pytest.mark.slow
def test_every_page_is_reached_from_the_first_one(site: Path) -> None:
    index = (site / "index.html").read_text()
    for page in [*PAGES, *(ROOT / "docs" / "notebooks").glob("*.ipynb")]:
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / name).exists() and (page.stem == "index" or f'href="{name}"' in index), name


@pytest.mark.slow
def test_links_inside_the_site_lead_somewhere(site: Path) -> None:
    """To a file, and where they name a place in a page, to an element of it."""

    @cache
    def places(page: Path) -> set[str]:
        return {unescape(place) for place in re.findall(r'\s(?:id|name)="([^"]+)"', page.read_text())}

    lost = []
    for page in site.rglob("*.html"):
        links = {unescape(link) for link in re.findall(r'\shref="([^"]+)"', page.read_text())}
        for link in (link for link in links if not re.match(r"\w+:|//", link)):
            name, _, place = link.partition("#")
            file = page.parent / unquote(name.partition("?")[0]) if name else page
            if not file.exists() or (place and file.suffix == ".html" and unquote(place) not in places(file)):
                lost.append(f"{page.relative_to(site)}: {link}")
    assert lost == []


@pytest.mark.slow
def test_public_symbols_have_an_entry(site: Path) -> None:
    for module, names in {
        "evorl.api.runs": ["run", "sweep", "resume", "load", "RunResult.plot"], "evorl.api.policy": ["Policy.act"],
        "evorl.mdp.core": ["World", "Arena", "Battle"], "evorl.mdp.spec": ["Spec"],
        "evorl.ec.core": ["Evolver", "Individual"],
    }.items():  # fmt: skip
        text = (site / "api" / f"{module}.html").read_text()
        assert [name for name in names if f'id="{module}.{name}"' not in text] == []


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_a_page_looks_as_it_should(site: Path, browser: Any, width: int) -> None:  # noqa: F811
    """Its pictures have come, nothing is wider than the window, and a picture of it is not empty."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    api = [site / "api" / f"{name}.html" for name in ("index", "evorl.api.runs", "evorl.mdp.core", "evorl.rl.ppo")]
    for path in [*site.glob("*.html"), *site.glob("notebooks/*.html"), *site.glob("evolvers/*.html"), *api]:
        page.goto(path.as_uri())
        page.wait_for_function("[...document.images].every(image => image.complete)")
        lost = page.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.src)")
        assert lost == [], path.name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
        with Image.open(io.BytesIO(page.screenshot())) as picture:
            colours = picture.convert("RGB").resize((200, 140)).getcolors(28_000)
        assert colours is not None and len(colours) > 20, path.name
    page.close()
    assert errors == []


def test_no_keyword_is_that_of_a_question_held_out() -> None:
    """No page has all words of one among its keywords, and none of docs/conf.py has an index entry with it."""
    keywords = dict(re.findall(r'^  (\w+): "(.*)",$', (DOCS / "search.js").read_text(), re.MULTILINE))
    assert len(keywords) > 20 and {*keywords} <= {page.stem for page in PAGES}
    assert not {*HELD_OUT} & {*QUESTIONS}
    for question in HELD_OUT:
        words = {word.lower() for word in question.split()}
        assert [page for page, of in keywords.items() if words <= {*of.lower().split()}] == []
    assert not any("{index}" in page.read_text() for page in [*PAGES, DOCS / "conf.py"])


def lost(site: Path, page: Any, questions: Mapping[str, str]) -> dict[str, list[str]]:
    """The questions whose page is not among the first three answers, with these three."""
    found = {}
    for question in questions:
        page.goto(f"{(site / 'search.html').as_uri()}?q={quote(question)}")
        page.wait_for_function(
            "document.querySelector('#search-results .search-summary')?.innerText.match(/finished|not match/)"
        )
        links = page.eval_on_selector_all("#search-results li > a", "all => all.map(a => a.getAttribute('href'))")
        found[question] = [*dict.fromkeys(Path(re.split("[?#]", link)[0]).stem for link in links)][:3]
    return {question: first for question, first in found.items() if questions[question] not in first}


@pytest.mark.slow
@needs_chromium
def test_the_search_finds_the_page_of_a_question(site: Path, browser: Any) -> None:  # noqa: F811
    page = browser.new_page()
    assert lost(site, page, QUESTIONS) == {}
    not_found = lost(site, page, HELD_OUT)
    page.close()
    assert len(HELD_OUT) - len(not_found) >= FOUND, not_found
