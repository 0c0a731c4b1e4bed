"""The specification of a search over whole runs: an evolver, the genes, and the KEY=VALUE words that all jobs share.

With ``hydra/sweeper=evorl`` the ranges on a command line are genes; the other words are the same for every job.
`evorl.jobs.search_loop` runs the search.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from omegaconf import DictConfig, OmegaConf

from evorl.analysis.runs import flatten, read_json
from evorl.analysis.sweeps import SEARCH_FILE
from evorl.cli import config
from evorl.cli.groups import options
from evorl.cli.hydra_internals import HasConfigLoader, Hydra
from evorl.cli.overrides import parse
from evorl.cluster.local import Local
from evorl.ec.core import Evolution, IndependentEvolution, Individual, Objective, objective_weights
from evorl.ec.early_stopping import EarlyStopping, resource
from evorl.ec.space import Gene, Space, Value
from evorl.jobs import run_players
from evorl.jobs.identity import same_players, same_source
from evorl.jobs.job import is_run, optimizer
from evorl.mdp.problem import Problem
from evorl.record.metrics import METRICS
from evorl.training.experiment import Budget, Checkpoints, Evaluation, Experiment
from evorl.training.periods import PARTS
from evorl.util import run_directory
from evorl.util import seed as seeds
from evorl.util.command import quoted
from evorl.util.errors import BadRequest, nearest_or_all
from evorl.util.typed import T, typed
from evorl.util.types import Count, Natural

KEY = "hydra.sweeper"
PLACE = "hydra.sweep.dir"
SUBDIR = "hydra.sweep.subdir"
TARGET = "hydra_plugins.evorl_sweeper.EvorlSweeper"
TOLD = "population.jsonl"
"""The file in the directory of the sweep with all evaluations that the evolver was told."""
NO_GENES = ("seed", "init", "init_optimizer", "resume", "replay", "trust")
"""Keys that select a repetition or a starting point; these must not evolve."""
OF_ONE_RUN = ("slots", "together", "start", "train_steps", "episodes", "genes", "reward", "cap")
"""Keys of an evolution that have no meaning where whole jobs are evaluated."""
EVALUATED = ("episodes", *(
    name.removeprefix("eval/").removesuffix("_mean") for name in METRICS if name.startswith("eval/") and "<" not in name
))  # fmt: skip
"""Names of the results of an evaluated policy in result.json, without their suffix _mean."""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The keys of ``conf/hydra/sweeper/evorl.yaml`` except its evolver."""

    jobs: Count = 100
    """Total number of jobs."""
    parallel: Count | None = None
    """Jobs passed to the launcher at once; null is the evolver's population."""
    direction: Literal["maximize", "minimize"] = "maximize"


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a command asks to be searched."""

    keys: Keys
    evolution: IndependentEvolution
    space: Space
    words: Mapping[str, str]
    """The words that every job has, by key."""
    seed: int
    steps: int | None = None
    """The environment steps of a job that is never stopped early; None where none is stopped."""
    periods: Mapping[str, int] = field(default_factory=dict)
    """Environment steps between evaluations and checkpoints, where jobs are stopped early, by key."""

    @property
    def at_once(self) -> int:
        """The largest number of jobs in a batch."""
        return self.keys.parallel or self.evolution.population

    @property
    def inherits(self) -> bool:
        """Whether a child's job starts from its parent's run, as children inside a run inherit what was learned."""
        return self.evolution.lifetime == "train" and self.steps is None

    def ends(self, individual: Individual) -> int | None:
        """The budget.steps with which an individual's job is evaluated; None for those of the command."""
        return None if self.steps is None else resource(individual, self.steps)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The evolver's objectives, signed so that more is better."""
        terms = self.evolution.objectives
        if self.keys.direction == "maximize":
            return terms
        return tuple({name: -x for name, x in objective_weights(term).items()} for term in terms)

    def extremes(self) -> list[list[str]]:
        """The words of jobs at both ends of every range, at every choice, and at a point inside all ranges.

        The point has fractions, which integer keys refuse."""
        within = self.space.low + (self.space.high - self.space.low) * (math.sqrt(5) - 1) / 2
        ends = {gene.name: gene.choices or tuple(map(gene.value, gene.bounds)) for gene in self.space.genes}
        first = {name: values[0] for name, values in ends.items()}
        rest = [{**first, name: value} for name, values in ends.items() for value in values[1:]]
        return [self._written(values, {}) for values in (first, *rest, self.space.values(within))]

    def job(self, individual: Individual, number: int, parent: Path | None) -> list[str]:
        """The words of an individual's job."""
        own = {}
        if self.inherits or self.evolution.seeds == "fresh":
            own["seed"] = str(seeds.key(self.seed, "job", number) >> 33)
        if parent is not None:
            own["init"] = quoted(str(parent))
            own |= {"init_optimizer": "true"} if self.evolution.inherit_optimizer else {}
        if (ends := self.ends(individual)) is not None:
            own |= {"budget.steps": str(ends), **{key: str(every) for key, every in self.periods.items()}}
            own[SUBDIR] = str(number)  # for Hydra it is another job, that of a promoted individual too
        return self._written(self.space.values(individual.genes), own)

    def _written(self, values: Mapping[str, Value], own: Mapping[str, str]) -> list[str]:
        words = {**self.words, **{key: str(value) for key, value in values.items()}, **own}
        return [f"{key}={value}" for key, value in words.items()]

    def identity(self) -> dict[str, Any]:
        """The data that must not change when a search is resumed."""
        evolver = {"kind": type(self.evolution).__name__, **msgspec.to_builtins(self.evolution)}
        genes = {gene.name: msgspec.to_builtins(gene) for gene in self.space.genes}
        return {KEY: {"direction": self.keys.direction, "evolver": evolver}, "genes": genes, "words": dict(self.words)}

    def check(self, directory: Path, experiments: Sequence[Experiment]) -> None:
        """Check that the search between these extreme jobs can run in this directory. Raises `BadRequest`."""
        self.check_place(directory)
        if self.inherits:
            _check_heirs(experiments)
            if self.evolution.inherit_optimizer and len(set(map(optimizer, experiments))) > 1:
                raise BadRequest("needs the same rl.optimizer in all jobs", f"{KEY}.evolver.inherit_optimizer")
        try:
            self.evolution.evolver(self.space, self.seed)
            _check_results(self.evolution.wanted(self.space), experiments)
        except BadRequest as error:
            raise error.under(f"{KEY}.evolver") from None

    def check_place(self, directory: Path) -> None:
        """Raise `BadRequest` if the directory holds another search with evaluations, or jobs at the paths of this
        search's jobs."""
        past = read_json(directory, SEARCH_FILE)
        first = max(self.keys.parallel or 0, self.evolution.population)
        if past is None or not (run_directory.exists(directory, TOLD) or (directory / str(first)).exists()):
            return
        old, new = flatten(past), flatten(msgspec.json.decode(msgspec.json.encode(self.identity())))
        for key in dict.fromkeys([*new, *old]):
            if old.get(key) != new.get(key) and not _same_runs(directory, key, new.get(key)):
                name = key.removeprefix("words.")
                was = f"the search in {directory} was begun with {old.get(key, 'nothing')}"
                raise BadRequest(f"{was}, and has {new.get(key, 'nothing')} now", name)


def _same_runs(directory: Path, key: str, word: Any) -> bool:
    """Whether a word of ``init`` or ``opponents.runs`` names the runs that the first job of a search began with."""
    if key == "words.init":
        return _same_source(directory, word)
    return key == f"words.{run_players.KEY}" and _same_players(directory, word)


def _same_source(directory: Path, word: Any) -> bool:
    """Whether the run that a word names is the one that the first job of a search started from."""
    first = directory / "0"
    if word is None or not is_run(first):
        return False
    path = Path(str(parse([f"init={word}"])[0].value())).absolute()
    return same_source(first, config.read_run_config(first, PLACE).get("init"), str(path))


def _same_players(directory: Path, word: Any) -> bool:
    """Whether the policies that a word names are those that the first job of a search played against."""
    first = directory / "0"
    listed = None if word is None else parse([f"{run_players.KEY}={word}"])[0].value()
    if not isinstance(listed, list) or not is_run(first):
        return False
    there = run_players.words_of(config.read_run_config(first, PLACE))
    return same_players(first, there, run_players.absolute([str(player) for player in listed]))


def chosen_evolver(word: str, hydra: Hydra) -> str:
    """``hydra.sweeper.evolver=NAME`` in Hydra's syntax: a file of conf/ec at that key. Raises `BadRequest`."""
    key, _, choice = word.partition("=")
    if key != f"{KEY}.evolver" or not choice.isidentifier():
        return word
    evolvers = [name for name in options(hydra, "ec") if name != "none"]
    if choice not in evolvers:
        raise BadRequest(f"no evolver {choice}{nearest_or_all(choice, evolvers)}", key)
    return f"ec@{word}"


def is_search(base: DictConfig) -> bool:
    return str(base.hydra.sweeper.get("_target_")) == TARGET


def stops_jobs(base: DictConfig) -> bool:
    """Return whether a composed command, or job, is of a search that stops jobs early and lets the best ones go on."""
    return is_search(base) and isinstance(_evolution(base), EarlyStopping)


def _evolution(base: DictConfig) -> Any:
    """The evolver of a search's command or job. Raises `BadRequest`."""
    node, trust = OmegaConf.to_container(base.hydra.sweeper.evolver), config.task_words(base)
    return config.group_object(node, Evolution, f"{KEY}.evolver", config.trusted_packages(trust, {}))


def read_search(base: DictConfig, hydra: HasConfigLoader) -> Search:
    """Return the search of a composed command line. Raises `BadRequest`."""
    node = OmegaConf.to_container(base.hydra.sweeper)
    assert isinstance(node, dict)
    own = config.task_words(base)
    overrides = {override.get_key_element(): override for override in parse(own, hydra)}  # the last one counts
    if node.get("_recursive_") is not False:
        raise BadRequest("stays false: the evolver is made of its keys by evorl, not by Hydra", f"{KEY}._recursive_")
    keys = {str(key): value for key, value in node.items() if key not in ("_target_", "_recursive_", "evolver")}
    evolution = _evolution(base)
    if not isinstance(evolution, IndependentEvolution):
        raise BadRequest(
            "its individuals share a critic, which jobs cannot; choose another, such as pbt", f"{KEY}.evolver"
        )
    if evolution.opposes:
        raise BadRequest("its individuals play each other, which jobs cannot; choose another", f"{KEY}.evolver")
    _check(evolution)
    genes = tuple(_gene(override) for override in overrides.values() if override.is_sweep_override())
    if not genes:
        raise BadRequest("nothing to search; give a key a range: 'rl.lr=tag(log,interval(1e-5,1e-2))'", "hydra/sweeper")
    if base.hydra._get_node("sweep")._get_node("subdir")._value() != "${hydra:job.num}":
        raise BadRequest("the jobs of a search are numbered", SUBDIR)
    words = {
        key: override.get_value_element_as_str()
        for key, override in overrides.items()
        if not override.is_sweep_override()
    }
    seed = _value(base, "seed", Natural)
    search = Search(keys=typed(keys, Keys, KEY), evolution=evolution, space=Space(genes), words=words, seed=seed)
    return _with_whole_budget(search, evolution, base) if isinstance(evolution, EarlyStopping) else search


def _with_whole_budget(search: Search, evolution: EarlyStopping, base: DictConfig) -> Search:
    """A search that stops jobs early, with the budget of a job that goes on to the end, and periods that it has too."""
    steps = _value(base, "budget", Budget).steps
    if steps is None or "budget.steps" in {gene.name for gene in search.space.genes}:
        raise BadRequest("needs one value: the steps of a job that is never stopped early", "budget.steps")
    if steps < evolution.R:
        raise BadRequest(
            f"{steps} steps are fewer than the {evolution.R} units (R) that they are given in", "budget.steps"
        )
    evaluation, checkpoint = _value(base, "eval", Evaluation), _value(base, "checkpoint", Checkpoints)
    every = {"eval": evaluation.every, "checkpoint": checkpoint.every}
    periods = {f"{name}.every": steps // parts for name, parts in PARTS.items() if every[name] is None}
    return dataclasses.replace(search, steps=steps, periods=periods)


def _value(base: DictConfig, key: str, kind: type[T]) -> T:
    """The value at a key of a composed command line, as its type. Raises `BadRequest`."""
    value = base[key]
    return typed(OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value, kind, key)


def _check(evolution: IndependentEvolution) -> None:
    usual = type(evolution)()
    for name in OF_ONE_RUN:
        if getattr(evolution, name, None) != getattr(usual, name, None):
            raise BadRequest(
                "is of a population within one run; here whole jobs are evaluated", f"{KEY}.evolver.{name}"
            )
    if evolution.lifetime == "balance":
        raise BadRequest("games are balanced within one run, and jobs are whole runs", f"{KEY}.evolver.lifetime")
    if len(evolution.objectives) > 1 and not evolution.several:
        raise BadRequest("this evolver takes one; nsga2, nsga3 and random take several", f"{KEY}.evolver.objectives")


# ------------------------------------------------------------------ genes


def _gene(override: Override) -> Gene:
    """The gene of a key with a range: an interval, integers, or the words of a list in order."""
    key, sweep = override.get_key_element(), override.value()
    if override.key_or_group in NO_GENES:
        raise BadRequest("is no gene; give it one value", override.key_or_group)
    try:
        if isinstance(sweep, IntervalSweep):
            low, high = sweep.start, sweep.end
            assert low is not None and high is not None
            return Gene(key, low, high, "log" in sweep.tags, isinstance(low, int) and isinstance(high, int))
        if isinstance(sweep, RangeSweep) and sweep.step == 1 and isinstance(sweep.start, int):
            assert sweep.stop is not None
            return Gene(key, sweep.start, sweep.stop - 1, "log" in sweep.tags, True)
    except ValueError as error:
        raise BadRequest(str(error), override.key_or_group) from None
    choices = tuple(_choice(text) for text in override.sweep_string_iterator())
    if not choices:
        raise BadRequest("has no choice", override.key_or_group)
    return Gene(key, choices=choices)


def _choice(text: str) -> Value:
    """A choice as a number if it is one, else as text."""
    value = parse([f"x={text}"])[0].value()
    return value if isinstance(value, int | float) else text


# ------------------------------------------------------------------ before the first job


def _check_results(wanted: Mapping[str, str], experiments: Iterable[Experiment]) -> None:
    """Raise `BadRequest`, at the key that names it, for a result that no result.json will have."""
    from evorl.population.objectives import check_results

    for world in {repr(experiment.mdp): experiment.mdp for experiment in experiments}.values():
        evaluated = () if isinstance(world, Problem) else EVALUATED
        check_results(wanted, world, ("steps", "seconds", *evaluated))


def _check_heirs(experiments: Iterable[Experiment]) -> None:
    """Raise `BadRequest` if the policy of one job would not fit another job that may start from its run."""
    from evorl.training.train import new_run

    state = None
    for experiment in experiments:
        if experiment.ec is not None:
            raise BadRequest("jobs that start from their parents' runs train one learner each; leave it out", "ec")
        run = new_run(dataclasses.replace(experiment, mdp=dataclasses.replace(experiment.mdp), cluster=Local()))
        try:
            state = state or run.learner.state_dict()
            run.learner.load_policy(state)
        except (KeyError, ValueError) as error:
            why = f"train: jobs start from their parents' runs, whose policies would not all fit ({error})"
            raise BadRequest(why, f"{KEY}.evolver.lifetime") from error
        finally:
            run.close()
