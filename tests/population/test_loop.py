"""Evolution from the command line: the same bits on any number of workers, after a stop, and in a replay."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import signal
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from evolution_runs import ASYNCHRONOUS, CASES, PONG, QUICK, evaluated, journal
from harness import ROOT, Faulty, experiment_of, fingerprint, go, newest, with_signal_at
from test_critic_loop import ASYNCHRONOUS as BESIDE
from test_critic_loop import SYNCHRONOUS as WITH_CRITIC

from evorl import evaluate
from evorl.cli import config
from evorl.cluster.core import Cluster
from evorl.cluster.local import Local
from evorl.cluster.processes import Processes
from evorl.cluster.workers.group import RemoteGroup
from evorl.ec.asha import ASHA
from evorl.ec.core import IndependentEvolution, Individual, pack
from evorl.ec.pbt import PBT
from evorl.ec.random import Random
from evorl.ec.sga import SGA
from evorl.ec.space import Space
from evorl.mdp.core import Arena, Spec, WorldError
from evorl.population import core, objectives
from evorl.population.evaluation import evaluation_plan
from evorl.population.genes import with_values
from evorl.population.loop import Population
from evorl.population.results import IndividualResult
from evorl.population.train_evaluator import TrainEvaluator
from evorl.rl.core import Episode, Learned
from evorl.rl.ppo import Learner
from evorl.training.experiment import Experiment
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes


def evolved(directory: Path, *words: str) -> None:
    assert go(*QUICK, *words, f"hydra.run.dir={directory}") == 0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A case's run in one process that nothing disturbs, made once, for others to be compared with."""
    place = tmp_path_factory.mktemp("alone")

    @cache
    def made(case: str) -> Path:
        evolved(place / case, *{**CASES, **ASYNCHRONOUS}[case])
        return place / case

    return made


@pytest.mark.slow_cases(but=("es",))
@pytest.mark.parametrize("case", [*CASES, *ASYNCHRONOUS])
def test_n_and_n_more_is_2n(case: str, alone: Callable[[str], Path], tmp_path: Path) -> None:
    """In one process an asynchronous run's order is that of asking, so it repeats as well."""
    words = {**CASES, **ASYNCHRONOUS}[case]
    whole, halves = alone(case), tmp_path / "halves"
    steps = int(words[-1].partition("=")[2])
    evolved(halves, *words[:-1], f"budget.steps={steps // 2}")
    stopped = json.loads((halves / "result.json").read_bytes())["steps"]
    assert stopped < json.loads((whole / "result.json").read_bytes())["steps"]
    assert go(f"resume={halves}", f"budget.steps={steps}") == 0
    assert journal(halves) == journal(whole)
    assert evaluated(halves) == evaluated(whole)
    assert fingerprint(halves, aside=[stopped]) == fingerprint(whole, aside=[stopped])


@pytest.mark.slow_cases(but=("es-normal",))
@pytest.mark.parametrize("case", ["es-normal", "rounds", "steady", "pbt"])
def test_a_signal_ends_the_evaluation_of_an_individual_at_once(
    case: str, alone: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, words = tmp_path / "run", {**CASES, **ASYNCHRONOUS}[case]
    made = with_signal_at(monkeypatch, 100)
    assert go(*QUICK, *words, f"hydra.run.dir={run}") == 130
    monkeypatch.undo()
    assert made == [100]
    assert newest(run)["run"]["evaluations"] < len(journal(alone(case)))
    assert go(f"resume={run}") == 0
    assert journal(run) == journal(alone(case))
    assert evaluated(run) == evaluated(alone(case))
    assert fingerprint(run) == fingerprint(alone(case))


@pytest.mark.slow
def test_a_signal_does_not_wait_for_individuals_on_workers(
    alone: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, polled, poll = tmp_path / "run", [0], RemoteGroup.poll

    def noted(group: RemoteGroup, timeout_s: float) -> None:
        polled[0] += 1
        if polled[0] == 3:
            signal.raise_signal(signal.SIGTERM)
        poll(group, timeout_s)

    monkeypatch.setattr(RemoteGroup, "poll", noted)
    assert go(*QUICK, *CASES["rounds"], "cluster=processes", "cluster.workers=2", f"hydra.run.dir={run}") == 143
    monkeypatch.undo()
    assert polled == [3] and newest(run)["run"]["evaluations"] == 0
    assert go(f"resume={run}") == 0
    assert journal(run) == journal(alone("rounds"))
    assert evaluated(run) == evaluated(alone("rounds"))


@pytest.mark.slow_cases(but=("3-es",))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing(workers: int, case: str, alone: Callable[[str], Path], tmp_path: Path) -> None:
    there = tmp_path / "there"
    evolved(there, *CASES[case], "cluster=processes", f"cluster.workers={workers}")
    assert journal(there) == journal(alone(case))
    assert evaluated(there) == evaluated(alone(case))


def test_no_episode_is_longer_than_the_cap_of_its_generation(alone: Callable[[str], Path]) -> None:
    lines, reached = journal(alone("es-cap")), 0
    each = [[one["results"]["length"] for one in lines[at : at + 6]] for at in range(0, len(lines), 6)]
    for before, lengths in pairwise(each):
        cap = math.ceil(1.2 * sum(before) / 6)
        assert max(lengths) <= cap
        reached += max(lengths) > 1.1 * sum(before) / 6
    assert len(each) > 3 and reached > 1  # some would have been longer


STOPPING = ("ec.train_steps=256", "ec.population=2", "ec.episodes=2", "ec.R=4", "ec.eta=2")
OTHERS = {
    "asha": (*STOPPING, "ec.asynchronous=false"),
    "cem": (),
    "cma_es": (),
    "cso": (),
    "hyperband": STOPPING,
    "optuna": (*STOPPING[:3], "ec.lifetime=train", "+ec.genes.rl.lr=[1e-4,1e-2]"),
    "map_elites": ("+ec.descriptors={length:[0,500,5]}",),
    "nsga3": ("ec.objectives=[fitness,{length:-1}]",),
    "one_plus_one": ("ec.population=3",),
    "pso": (),
    "random": (),
}
"""Evolvers without a case of their own, and what each needs beside its name."""


def test_no_evolver_is_forgotten() -> None:
    cases = [CASES, WITH_CRITIC, BESIDE]
    words = [word for one in cases for words in one.values() for word in words]
    named = {word.removeprefix("ec=") for word in words if word.startswith("ec=")}
    assert named | {*OTHERS} == {path.stem for path in (ROOT / "conf" / "ec").glob("*.yaml")} - {"none"}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_workers_change_nothing_for_any_evolver(name: str, tmp_path: Path) -> None:
    words = ("mdp=cartpole", f"ec={name}", *OTHERS[name], "ec.together=1", "budget.steps=700")
    evolved(tmp_path / "alone", *words)
    evolved(tmp_path / "there", *words, "cluster=processes", "cluster.workers=2")
    assert len({line["birth"] for line in journal(tmp_path / "alone")}) > 1  # it has learned from a generation
    assert journal(tmp_path / "there") == journal(tmp_path / "alone")
    assert evaluated(tmp_path / "there") == evaluated(tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.parametrize("where", [("cluster=local",), ("cluster=processes", "cluster.workers=2")], ids=" ".join)
@pytest.mark.parametrize("case", ["es", "es-normal"])
def test_a_search_by_seed_goes_on_wherever_it_is_resumed(
    case: str, where: tuple[str, ...], alone: Callable[[str], Path], tmp_path: Path
) -> None:
    other = ("cluster=processes", "cluster.workers=1") if where == ("cluster=local",) else ("cluster=local",)
    evolved(tmp_path / "halves", *CASES[case][:-1], "budget.steps=900", *other)
    assert go(f"resume={tmp_path / 'halves'}", "budget.steps=2000", *where) == 0
    assert journal(tmp_path / "halves") == journal(alone(case))
    assert evaluated(tmp_path / "halves") == evaluated(alone(case))


@pytest.mark.slow_cases(but=("cem",))
@pytest.mark.parametrize("case", ASYNCHRONOUS)
def test_an_asynchronous_run_is_repeated_from_its_journal(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    evolved(first, *ASYNCHRONOUS[case], "cluster=processes", "cluster.workers=2")
    assert go(f"replay={first}", "cluster=local", f"hydra.run.dir={again}") == 0
    assert journal(again) == journal(first)
    assert evaluated(again) == evaluated(first)
    assert "repetition" not in "".join(capsys.readouterr())


def test_only_an_asynchronous_evolution_has_a_journal_to_repeat(
    alone: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go(f"replay={alone('problem')}", f"hydra.run.dir={tmp_path / 'again'}") == 2
    assert "no asynchronous evolution" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("+debug=tiny", "debug: has no place here: replay repeats a run as it is"),
        ("init=there", "init: starts a new run, and replay repeats an old one: give one of the two"),
    ],
)
def test_what_a_repetition_refuses(
    word: str, line: str, alone: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = alone("problem")
    capsys.readouterr()
    assert go(f"replay={there}", word, f"hydra.run.dir={tmp_path / 'again'}") == 2
    assert capsys.readouterr().err.startswith(f"evorl: {line}")


# ------------------------------------------------------------------ on which episodes


@pytest.mark.parametrize("lifetime", ["play", "train"])
@pytest.mark.parametrize(("seeds", "alike"), [("common", True), ("fresh", False)])
def test_equals_are_evaluated_on_the_same_episodes_or_each_on_its_own(lifetime: str, seeds: str, alike: bool) -> None:
    """Two individuals that differ by their number alone; a learner hardly moves them."""
    words = (f"ec.lifetime={lifetime}", f"ec.seeds={seeds}", "ec.train_steps=64", "ec.episodes=20")
    still = ("rl.lr=1e-30", "rl.normalize_inputs=false", "rl.net.activation=tanh")
    experiment = experiment_of(*QUICK, "mdp=cartpole", "ec=pbt", *words, *still)
    assert experiment.ec is not None
    how = evaluation_plan(experiment, experiment.ec)
    member, weights = how.make(0), how.space.weights_of(0)
    found = []
    for number in (0, 1):
        one = Individual(number, np.empty(0), weights)
        found.append(IndividualResult(*member.evaluate(pack([one])).each[0]).result["length"])
    assert np.array_equal(*found) == alike


# ------------------------------------------------------------------ genes


@pytest.mark.slow
def test_what_the_learner_uses_is_its_genome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked inside the update, for every individual: the hyper-parameters, and the rate that the optimiser takes."""
    used: dict[int, set[tuple[float, ...]]] = {}
    others = ("critic_coef", "clip", "lam", "gamma", "entropy_coef")
    update = Learner.update

    def noting(self: Learner, batch: Any, step: int, iteration: int) -> Learned:
        learned = update(self, batch, step, iteration)
        rate = learned.metrics["optimizer/lr"]
        assert rate == self.hyper.lr
        used.setdefault(self.seed, set()).add((float(rate), *(getattr(self.hyper, name) for name in others)))
        return learned

    monkeypatch.setattr(Learner, "update", noting)
    evolved(tmp_path / "run", *CASES["rounds"], *(f"+ec.genes.rl.{name}=[0.1,0.9]" for name in others))
    lines = journal(tmp_path / "run")
    assert len({line["genes"]["rl.lr"] for line in lines}) > 6, "nobody's genes changed"
    asked = {tuple(line["genes"][f"rl.{name}"] for name in ("lr", *others)) for line in lines}
    assert all(len(genomes) == 1 for genomes in used.values())  # one individual, one genome
    assert {genome for genomes in used.values() for genome in genomes} >= asked


def test_a_gene_changes_what_is_learned(tmp_path: Path) -> None:
    experiment = experiment_of(*QUICK, *CASES["rounds"])
    assert experiment.ec is not None
    ends = []
    for coefficient in (0.1, 0.9):
        changed = with_values(experiment, {"rl.critic_coef": coefficient})
        population = Population(changed, experiment.ec)
        population.iterate()
        ends.append(population.evolver.population[0].individual.weights)
        population.close()
    assert not (ends[0] == ends[1]).all()


REFUSED = {
    "+ec.genes.rl.lrr=[0,1]": "ec.genes.rl.lrr: unknown key; did you mean ec.genes.rl.lr?",
    "+ec.genes.rll.lr=[0,1]": "ec.genes.rll: unknown key; did you mean ec.genes.rl?",
    "+ec.genes.seed=[0,1]": "ec.genes.seed",
    "+ec.genes.rl.lrr={}": "ec.genes.rl.lrr: unknown key; did you mean ec.genes.rl.lr?",
    "+ec.genes.rl.lr={}": "ec.genes.rl.lr: a range is",
    "+ec.genes.rl.lr=[1,0]": "needs low <= high",
    "+ec.genes.rl.lr={low:0,high:1,log:true}": "needs low > 0",
    "+ec.genes.rl.lr=[-1,1]": "ec.genes.rl.lr: its range reaches -1",
    "+ec.genes.rl.clip=[0,1]": "ec.genes.rl.clip: its range reaches 0",
    "+ec.genes.rl.lr=3": "a range is",
    "+ec.genes.rl.lr={lo:0,high:1}": "ec.genes.rl.lr",
    "+ec.genes.rl.net.hidden=[1,2]": "is the same for all individuals",
    "+ec.genes.rl.normalize_advantage=[0,1]": "is no number",
    "+ec.genes.rl.correction={choices:[none,maybe]}": "its range reaches maybe",
}


@pytest.mark.parametrize("word", REFUSED)
def test_genes_that_cannot_be(word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "run"
    assert go(*QUICK, "mdp=cartpole", "ec=pbt", word, f"hydra.run.dir={there}") == 2
    said = capsys.readouterr().err
    assert REFUSED[word] in said and said.count("\n") == 1
    assert not there.exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("ec=nsga3x",), "ec: no choice 'nsga3x'"),
        (("ec=pbt", "ec.slots=40"), "ec.slots: 40 is more than the population"),
        (("ec=sga", "rl.compile=true"), "rl.compile: nothing learns here"),
        (("ec=pbt", "rl.compile=true", "+ec.genes.rl.clip=[0.1,0.3]"), "ec.genes.rl.clip: with rl.compile each of its"),
        (("ec=pbt", "ec.start=zeros"), "ec.start: needs lifetime=play"),
        (("ec=sga", "ec.objectives=[fitness,length]"), "ec.objectives: this evolution takes one; ec=nsga2"),
        (("ec=openai_es", "ec.cap=1"), "ec.cap: must be above 1, or episodes get shorter and shorter; got 1"),
        (("ec=openai_es", "ec.cap=-3"), "ec.cap: must be above 1, or episodes get shorter and shorter; got -3"),
        (("ec=openai_es", "ec.cap=2", "ec.lifetime=train"), "ec.cap: is for episodes that weights play"),
        (("ec=openai_es", "ec.cap=2", "mdp=problem"), "ec.cap: is for episodes that weights play"),
        (
            ("ec=openai_es", "ec.cap=2", "mdp=pong"),
            "ec.cap: episodes of Pong cannot be cut after a number of environment steps",
        ),
        (("ec=sga", "+ec.genes.rl.lr=[0,1]"), "lifetime=play learns nothing"),
        (("ec=openai_es", "rl=dqn"), "ec: plays the weights of a policy, and this learner has action values; rl=ppo"),
        (("ec=map_elites",), "evorl: ec.descriptors: map_elites needs at least one"),
        (("ec=map_elites", "+ec.descriptors.lazy=[1,0,5]"), "evorl: ec.descriptors.lazy: needs low < high"),
        (("ec=sga", "mdp=problem", "+ec.genes.mdp.dimensions=[1,5]"), "a problem's numbers are the genes"),
        (("ec=sga", "mdp=problem", "mdp.id=zdt1"), "ec.objectives: this evolution takes one; ec=nsga2"),
        (("mdp=problem",), "it needs an evolution"),
        (("ec=asha", "mdp=problem"), "ec: what is stopped early is training, and a function has none; take ec=random"),
        (("ec=hyperband", "mdp=problem"), "ec: what is stopped early is training, and a function has none"),
    ],
)
def test_evolutions_that_cannot_be(
    words: tuple[str, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "run"
    assert go("mdp=cartpole", *words, f"hydra.run.dir={there}") == 2
    assert text in capsys.readouterr().err
    assert not there.exists()


def test_a_descriptor_that_the_world_does_not_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("ec=map_elites", "+ec.descriptors.lasy=[0,1,5]", f"hydra.run.dir={tmp_path / 'run'}")
    assert go(*QUICK, *PONG, *words) == 2
    said = capsys.readouterr().err
    assert said.startswith("evorl: ec.descriptors.lasy: there is no result lasy; did you mean lazy?")
    assert said.count("\n") == 1 and not [*tmp_path.iterdir()]


UNREPORTED = {
    ("mdp=pong", "ec.objectives=[fitnes,busy]"): "ec.objectives: there is no result fitnes; did you mean fitness?",
    ("mdp=pong", "ec.lifetime=train", "ec.objectives=[fitness,{lenght:-1}]"): "no result lenght; did you mean length?",
    ("mdp=pong", "mdp.opponent=self", "ec.objectives=[fitness,bussy]"): "no result bussy; did you mean busy?",
    ("mdp=cartpole", "ec.objectives=[fitness,lazy]"): "no result lazy; there are: fitness, length, return",
    ("mdp=cartpole", "ec.objectives=[]"): "ec.objectives: needs a result to maximise",
    ("mdp=cartpole", "ec.objectives=[fitness,{}]"): "ec.objectives: needs a result to maximise",
    ("mdp=cartpole", "ec.objectives=[fitness,length,fitness]"): "ec.objectives: fitness is there twice",
    ("mdp=cartpole", "ec.objectives=[fitness,{fitness:1}]"): "ec.objectives: fitness is there twice",
    ("mdp=cartpole", "ec.objectives=[{length:0.1234567},{length:0.12345671}]"): "0.123457*length is there twice",
    ("mdp=problem", "mdp.id=zdt1", "ec.objectives=[f1]"): "ec.objectives: a problem's are all its own: f1, f2",
}


def test_a_problem_s_own_objectives_may_be_named() -> None:
    experiment = experiment_of(*QUICK, "mdp=problem", "mdp.id=zdt1", "ec=nsga2", "ec.objectives=[f1,f2]")
    assert experiment.ec is not None and evaluation_plan(experiment, experiment.ec).objective_names == ("f1", "f2")


@pytest.mark.parametrize("words", UNREPORTED)
def test_an_objective_that_the_world_does_not_report(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go(*QUICK, *words, "ec=nsga2", f"hydra.run.dir={tmp_path / 'run'}") == 2
    said = capsys.readouterr().err
    assert UNREPORTED[words] in said and said.count("\n") == 1
    assert not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("fault", "seconds", "error", "line"),
    [
        ("nothing", 0.0, BadRequest, "no result scor; did you mean score?"),
        ("crash", 60.0, WorldError, "the roof fell in"),
    ],
)
def test_where_no_episode_tells_the_results_the_first_evaluation_does(
    fault: str, seconds: float, error: type[Exception], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evorl.mdp.random_play.PATIENCE_S", seconds)
    evolution = SGA(population=2, episodes=2, objectives=("scor",))
    population = Population(faulty(fault, evolution), evolution)
    try:
        with pytest.raises(error, match=re.escape(line)):
            for _ in range(evolution.population):
                population.iterate()
    finally:
        population.close()


def test_what_only_an_evolution_names_needs_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    monkeypatch.setattr(objectives, "result_names", played.append)
    for terms in (("fitness",), ({"return": 1.0, "length": -0.1},), ("score",)):
        evolution = SGA(population=2, episodes=2, objectives=terms)
        Population(faulty("nothing", evolution), evolution).close()
    assert len(played) == 1


def test_worlds_made_to_be_looked_at_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those at the ends of ranges, and the one whose sample episode is played, which is not the run's own."""
    played, closed, reset = list[Faulty](), list[Faulty](), Faulty.reset

    def playing(world: Faulty, *players: int, seed: int) -> Any:
        played.append(world)
        return reset(world, *players, seed=seed)

    monkeypatch.setattr(Faulty, "reset", playing)
    monkeypatch.setattr(Faulty, "close", lambda world: closed.append(world))
    evolution = SGA(population=2, episodes=2, objectives=("score",), genes={"mdp": {"length": [2, 18]}})
    experiment = faulty("nothing", evolution)
    population = Population(experiment, evolution)
    assert [world.length for world in closed] == [2, 18, 30]
    assert played and all(world is closed[-1] for world in played) and closed[-1] is not experiment.mdp
    population.close()
    assert len(closed) == 4 and closed[-1] is experiment.mdp


@pytest.mark.slow_cases("train-one world")
@pytest.mark.parametrize("genes", [{}, {"mdp": {"length": [2, 18]}}], ids=["one world", "each its own"])
@pytest.mark.parametrize("lifetime", ["play", "train"])
def test_a_world_is_closed_once_after_all_that_is_played_in_it(
    lifetime: Literal["play", "train"], genes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An individual's own at the end of its life, the run's own at its end."""
    events, reset = list[tuple[str, Faulty]](), Faulty.reset

    def playing(world: Faulty, *players: int, seed: int) -> Any:
        events.append(("play", world))
        return reset(world, *players, seed=seed)

    monkeypatch.setattr(Faulty, "reset", playing)
    monkeypatch.setattr(Faulty, "close", lambda world: events.append(("close", world)))
    evolution = SGA(population=2, episodes=1, lifetime=lifetime, train_steps=64, genes=genes)
    population = Population(faulty("nothing", evolution), evolution)
    while population.evaluations < 4:
        population.iterate()
    population.close()
    worlds = {id(world): world for _, world in events}  # which are equal where their keys are
    for number in worlds:
        done = [what for what, world in events if id(world) == number]
        assert done[-1] == "close" and done.count("close") == 1


# ------------------------------------------------------------------ individuals that fail


def faulty(fault: str, evolution: IndependentEvolution) -> Experiment:
    base = experiment_of(*(word for word in QUICK if not word.startswith("ec.")), "mdp=cartpole", "budget.steps=2000")
    world = Faulty(fault=fault, at=10, length=30)
    return dataclasses.replace(base, mdp=world, ec=evolution)


@pytest.mark.slow_cases(but=("fitness-play-24-local", "fitness-train-12-local", "observation-play-24-local"))
@pytest.mark.parametrize("cluster", [Local(), Processes(workers=1)], ids=["local", "processes"])
@pytest.mark.parametrize(
    ("fault", "lifetime", "count"), [("observation", "play", 24), ("fitness", "play", 24), ("fitness", "train", 12)]
)
def test_who_is_not_finite_has_no_fitness_and_no_children(
    fault: str, lifetime: Literal["play", "train"], count: int, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Episodes end after ``length`` decisions, so who has more than ``at`` = 10 of them fails."""
    evolution = SGA(population=6, episodes=2, lifetime=lifetime, train_steps=64, genes={"mdp": {"length": [2, 18]}})
    population = Population(dataclasses.replace(faulty(fault, evolution), cluster=cluster), evolution)
    rows = []
    while len(rows) < count:
        rows += population.iterate().evaluated
    population.close()
    lost = {row["id"] for row in rows if math.isnan(row["objectives"]["fitness"])}
    assert lost and len(lost) < count
    assert {row["id"] for row in rows if row["genes"]["mdp.length"] > 10} == lost
    assert not any(lost & {*row["parents"]} for row in rows)
    assert population.failed == len(lost)
    where = {
        "observation": "input 'sight' of slot",
        "fitness": "reports the result 'fitness', which is not finite: nan",
    }
    said = [one.getMessage() for one in caplog.records]
    assert [where[fault] in text for text in said] == [True] * len(lost)


@pytest.mark.parametrize(("train_steps", "said"), [(998, False), (999, True)])
def test_a_budget_too_small_for_a_generation_is_told_at_the_start(
    train_steps: int, said: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two individuals that learn for so many steps and play two games, of which nobody knows the lengths."""
    evolution = PBT(population=2, train_steps=train_steps, episodes=2)
    population = Population(faulty("", evolution), evolution)
    monkeypatch.setattr(population, "fill_slots", lambda: (_ for _ in ()).throw(InterruptedError))
    with pytest.raises(InterruptedError):
        population.iterate()
    population.close()
    text = "budget.steps=2_000 ends before one generation is evaluated, which takes 2,002 steps or more"
    assert [text in one.getMessage() for one in caplog.records] == [True] * said
    assert all("lower ec.population or ec.train_steps or ec.episodes" in one.getMessage() for one in caplog.records)


def test_a_budget_of_early_stopping_is_compared_with_its_first_rung(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 64th of train_steps, of which 1,000 would not do for two."""
    evolution = ASHA(population=2, train_steps=6_400, episodes=2)
    population = Population(faulty("", evolution), evolution)
    monkeypatch.setattr(population, "fill_slots", lambda: (_ for _ in ()).throw(InterruptedError))
    with pytest.raises(InterruptedError):
        population.iterate()
    population.close()
    assert not caplog.records


@pytest.mark.parametrize("lifetime", ["play", "train"])
def test_when_everybody_fails_the_run_says_why(lifetime: str) -> None:
    evolution = PBT(population=2, lifetime=lifetime, train_steps=64, episodes=2)
    population = Population(faulty("observation", evolution), evolution)
    with pytest.raises(WorldError, match="every individual so far failed; the last one: input 'sight'"):
        for _ in range(3):
            population.iterate()
    population.close()


def test_who_failed_has_cost_what_it_trained() -> None:
    evolution = PBT(population=2, train_steps=1000, episodes=1)
    experiment = faulty("observation", evolution)
    late = Faulty(fault="observation", at=2 * experiment.rl.horizon + 1)  # in the third batch
    population = Population(dataclasses.replace(experiment, mdp=late), evolution)
    rows = population.iterate().evaluated
    cost = 2 * experiment.rl.slots * experiment.rl.horizon
    assert math.isnan(rows[0]["objectives"]["fitness"]) and rows[0]["cost"] == population.steps == cost
    population.close()


def test_a_run_in_which_everybody_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after somebody did not: who fails at once takes no steps, so that no budget of steps would end it."""
    monkeypatch.setattr(core, "HOPELESS", 12)
    evolution = Random(population=10, episodes=1, lifetime="play", genes={"mdp": {"length": [2, 18]}})
    population = Population(faulty("observation", evolution), evolution)
    while population.leader is None:
        population.iterate()
    middle = [np.array([17.0])] * 100
    monkeypatch.setattr(Space, "sample", lambda self, generator, n: np.array(middle[:n]))
    with pytest.raises(WorldError, match=r"the last 1[2-5] individuals all failed; the last one: input 'sight'"):
        for _ in range(20):
            population.iterate()
    population.close()


# ------------------------------------------------------------------ who is in flight

FLYING = {
    ("ec.population=30",): [8, 8, 8, 6],
    ("ec.population=7",): [2, 2, 2, 1],
    ("ec.population=30", "ec.slots=12"): [3, 3, 3, 3],
    ("ec.population=30", "ec.slots=60", "ec.asynchronous=true"): [15, 15, 15, 15],
    ("ec.population=5", "ec.together=2"): [2, 2, 1],
}


@pytest.mark.parametrize("words", FLYING, ids=" ".join)
def test_there_is_a_member_for_every_task(words: tuple[str, ...]) -> None:
    experiment = experiment_of(*QUICK, "mdp=cartpole", "ec=cem", "ec.episodes=1", *words)
    assert experiment.ec is not None
    population, sent = Population(experiment, experiment.ec), list[int]()
    send = population.dispatcher.send
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(population.dispatcher, "send", lambda each: sent.append(len(each)) or send(each))
        population.iterate()
    population.close()
    assert sent == FLYING[words] and population.group.size == len(sent)


# ------------------------------------------------------------------ what an evaluation costs


@pytest.mark.parametrize("words", [("mdp=duel",), PONG, ("mdp=pendulum", "mdp.frame_skip=4")], ids=" ".join)
def test_it_costs_the_steps_of_its_games(words: tuple[str, ...]) -> None:
    """Every advance of a game, of which there may be several between two decisions: as the arena counts them."""
    experiment = experiment_of(*QUICK, *words, "ec=random", "ec.episodes=3", "ec.together=1", "ec.population=1")
    assert experiment.ec is not None
    how = evaluation_plan(experiment, experiment.ec)
    counted, arenas = list[int](), type(experiment.mdp.evaluation_world()).arena

    def counting(world: Any, slots: int, episodes: Any) -> Any:
        arena = arenas(world, slots, episodes)
        recv = arena.recv

        def noting() -> Any:
            now = recv()
            counted.append(now.cost)
            return now

        arena.recv = noting
        return arena

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(experiment.mdp.evaluation_world()), "arena", counting)
        patch.setattr("evorl.population.play_evaluator.SLOTS", 1)  # one game after the other
        one = Individual(0, np.empty(0), how.space.weights_of(0))
        answer = IndividualResult(*how.make(0).evaluate(pack([one])).each[0])
    assert answer.cost == sum(counted) == answer.result["length"].sum()


def test_two_sides_of_a_game_cost_it_once() -> None:
    both = [Episode(1.0, length, (1.0,), {}) for length in (10.0, 9.0, 20.0, 20.0)]
    assert objectives.result_of_episodes(Random(), both, 2).cost == 30


class Pair(Faulty):
    """Both of whose sides are learned."""

    asked: ClassVar[list[int]] = []
    """Slots of its arenas."""

    @property
    def spec(self) -> Spec:
        return dataclasses.replace(super().spec, players=2)

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        self.asked.append(slots)
        return super().arena(slots, episodes)


@pytest.mark.parametrize(("episodes", "games"), [(4, 2), (5, 3), (1, 1), (600, 300)])
def test_no_game_is_played_for_nothing(episodes: int, games: int) -> None:
    """Where an individual holds both sides, each game is two of its episodes."""
    experiment = dataclasses.replace(experiment_of(*QUICK, "mdp=cartpole", "ec=random"), mdp=Pair(length=2))
    how = evaluation_plan(experiment, Random(population=2, episodes=episodes, together=2))
    Pair.asked.clear()
    packed = pack([Individual(n, np.empty(0), how.space.weights_of(n)) for n in range(2)])
    found = [IndividualResult(*one) for one in how.make(0).evaluate(packed).each]
    assert [len(one.result["length"]) for one in found] == [2 * games] * 2  # both sides count, also of the last game
    assert [one.cost for one in found] == [games * 2] * 2
    assert Pair.asked == [2 * 2 * min(games, 64)]  # of two individuals, both sides of each game, not more than 256


# ------------------------------------------------------------------ what is kept and told


def test_evaluate_plays_the_best_individual_again(
    alone: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = alone("front")
    evaluate.evaluate(config.parse_request(evaluate.Request, [f"run={run}", "json=true"]))
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    recorded = json.loads((run / "result.json").read_bytes())["eval"]
    assert again["return_mean"] == recorded["return_mean"] and again["length_mean"] == recorded["length_mean"]


def test_a_run_in_a_checkpoint_holds_no_more_than_it_needs(tmp_path: Path) -> None:
    evolved(tmp_path / "run", *CASES["es"], "cluster=processes", "cluster.workers=1")
    assert newest(tmp_path / "run")["run"]["evolver"]["population"]["individuals"]["weights"] is None


def test_in_one_process_the_first_result_waits_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    lived: list[int] = []
    evaluate_all = TrainEvaluator.evaluate
    monkeypatch.setattr(
        TrainEvaluator, "evaluate", lambda self, packed: lived.extend(packed["id"]) or evaluate_all(self, packed)
    )
    experiment = experiment_of(*QUICK, *CASES["rounds"])
    assert experiment.ec is not None
    population = Population(experiment, experiment.ec)
    population.iterate()
    population.close()
    assert lived == [0]
