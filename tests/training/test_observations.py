"""Populations that share statistics of what they see: frozen while a generation plays, and part of every policy."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evolution_runs import CASES, QUICK
from harness import Faulty, experiment_of, go, newest

from evorl import evaluate
from evorl.cli import config
from evorl.ec.core import pack, unpack_evaluations
from evorl.ec.sga import SGA
from evorl.nets.statistics import Moments, RunningVariance
from evorl.population.evaluation import evaluation_plan
from evorl.population.loop import Population
from evorl.rl.observation_statistics import ObservationStatistics

SHARED = (*QUICK, "mdp=cartpole", "rl.normalize_inputs=true")
SLOTS = ("ec.slots=4", "ec.together=2")


def population_of(*words: str) -> Population:
    experiment = experiment_of(*words)
    assert experiment.ec is not None
    return Population(experiment, experiment.ec)


def mean_of(memory: Any) -> torch.Tensor:
    mean: torch.Tensor = memory["moments"]["0"]["mean"]
    return mean


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """All inputs that anybody decides on in an episode that counts, as they come."""
    found: list[np.ndarray] = []
    see = ObservationStatistics.see

    def noting(
        self: ObservationStatistics, inputs: tuple[np.ndarray, ...], slots: np.ndarray, playing: np.ndarray
    ) -> None:
        found.append(inputs[0][slots[playing[slots]]].copy())
        see(self, inputs, slots, playing)

    monkeypatch.setattr(ObservationStatistics, "see", noting)
    return found


@pytest.mark.parametrize("evolver", ["openai_es", "sga", "pbt"])
def test_a_generation_knows_what_all_before_it_saw(evolver: str, rows: list[np.ndarray]) -> None:
    """Also where only some of it is in flight at once, and the others are asked for when those have been told."""
    life = ("ec.lifetime=play", "ec.asynchronous=false") if evolver == "pbt" else ()
    population = population_of(*SHARED, *SLOTS, f"ec={evolver}", *life)
    before = 0
    for generation in range(3):
        asked = []
        while population.evolver.generation == generation:
            population.fill_slots()
            asked += [one for task in population.in_flight for one in task.individuals]
            population.iterate()
        known = [one.memory for one in asked if one.id >= 6 * generation]
        assert known
        seen = np.concatenate(rows[:before]).astype(np.float64) if before else np.zeros((0, 4))
        for memory in known:
            assert memory is not None and memory["moments"]["0"]["count"] == len(seen)
            if before:
                np.testing.assert_allclose(mean_of(memory), seen.mean(0), rtol=1e-10, atol=1e-12)
                np.testing.assert_allclose(memory["moments"]["0"]["m2"], seen.var(0) * len(seen), rtol=1e-9)
        before = len(rows)
        assert sum(map(len, rows)) == population.steps  # CartPole: a decision is a step
    population.close()


def test_asynchronous_individuals_know_what_was_told_when_they_were_asked_for() -> None:
    population = population_of(*SHARED, "ec=sga", "ec.asynchronous=true", "ec.slots=4", "ec.together=1")
    known = []
    for _ in range(24):
        population.fill_slots()
        known.append(population.in_flight[-1].individuals[0].memory)
        population.iterate()
    population.close()
    counts = [0.0 if memory is None else memory["moments"]["0"]["count"] for memory in known]
    assert counts == sorted(counts) and len({*counts}) >= 4


@pytest.mark.slow
def test_the_statistics_matter() -> None:
    ends = []
    for how in ("false", "true", "whiten"):
        population = population_of(*SHARED, "ec=openai_es", f"rl.normalize_inputs={how}")
        for _ in range(12):
            population.iterate()
        ends.append([one.objectives for one in population.evolver.population])
        population.close()
    assert all(one != other for one, other in combinations(ends, 2))


@pytest.mark.slow
def test_a_policy_is_its_weights_and_the_statistics_that_it_played_with(tmp_path: Path) -> None:
    """An elite keeps the fitness that it has, and so the eyes; evaluated again it plays the very same episodes."""
    words = (*SHARED, "ec=sga", "ec.elites=4", "budget.steps=3000")
    assert go(*words, f"hydra.run.dir={tmp_path / 'run'}") == 0
    run, experiment = newest(tmp_path / "run")["run"], config.experiment_of_run(tmp_path / "run")
    assert experiment.ec is not None
    found = evaluation_plan(experiment, experiment.ec)
    people = unpack_evaluations(run["evolver"]["population"]) + unpack_evaluations(run["leader"])
    last = run["moments"]["all"]["0"]["mean"]
    assert len({tuple(np.asarray(mean_of(one.individual.memory))) for one in people}) > 1
    for one in people:
        memory = one.individual.memory
        assert memory is not None and not torch.equal(torch.as_tensor(mean_of(memory)), torch.as_tensor(last))
        (again,) = found.make(0).evaluate(pack([one.individual])).each
        assert tuple(again.objectives) == one.objectives
        assert found.learner is not None
        learner = found.learner(one.individual)
        assert torch.equal(learner.state_dict()["moments"]["0"]["mean"], torch.as_tensor(mean_of(memory)))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["es-normal", "es-whiten"])
def test_evaluate_judges_the_best_as_the_run_did(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(*QUICK, *CASES[case], "cluster=processes", "cluster.workers=1", f"hydra.run.dir={tmp_path / 'run'}") == 0
    evaluate.evaluate(
        config.parse_request(evaluate.Request, [f"run={tmp_path / 'run'}", "individual=best", "json=true"])
    )
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    recorded = json.loads((tmp_path / "run" / "result.json").read_bytes())["eval"]
    assert again["return_mean"] == recorded["return_mean"] and again["length_mean"] == recorded["length_mean"]


def test_who_failed_adds_nothing_to_the_statistics() -> None:
    """Episodes end after ``length`` decisions, so who has more than ``at`` = 10 of them fails, and plays alone."""
    evolution = SGA(population=6, episodes=2, genes={"mdp": {"length": [2, 18]}})
    words = [word for word in SHARED if not word.startswith(("ec.", "mdp="))]
    experiment = experiment_of(*words, "mdp=cartpole", "budget.steps=2000")
    made: Any = {"mdp": Faulty(fault="observation", at=10, length=30), "ec": evolution}
    population = Population(type(experiment)(**{**vars(experiment), **made}), evolution)
    while population.evaluations < 24:
        population.iterate()
    assert population.failed and population.moments is not None
    running = population.moments.running[0]
    assert isinstance(running, RunningVariance) and running.count == population.steps
    assert torch.isfinite(running.mean).all() and torch.isfinite(running.m2).all()
    population.close()


@pytest.mark.slow_cases(but=("True-sga", "False-pso"))
@pytest.mark.parametrize("evolver", ["nsga2", "sga", "one_plus_one", "pso", "cso"])
@pytest.mark.parametrize("optimizer", [False, True])
def test_a_learners_children_go_on_with_its_statistics(evolver: str, optimizer: bool) -> None:
    words = (f"ec={evolver}", "ec.lifetime=train", "ec.train_steps=64", f"ec.inherit_optimizer={optimizer}")
    population = population_of(*SHARED, *words)
    while not population.evolver.generation:
        population.iterate()
    parents = {one.individual.id: one.individual for one in population.evolver.population}
    population.fill_slots()
    for child in population.in_flight[0].individuals:
        memory, parent = child.memory, parents[child.parents[0]].memory
        assert memory is not None and parent is not None
        assert memory["learner"]["moments"]["0"]["count"] == parent["learner"]["moments"]["0"]["count"] > 0
        assert ("optimizer" in memory["learner"]) == optimizer
    population.close()


@pytest.mark.slow_cases(but=("cem",))
@pytest.mark.parametrize("evolver", ["openai_es", "cem", "cma_es"])
def test_a_learner_around_a_centre_goes_on_with_the_statistics_of_the_best(evolver: str) -> None:
    population = population_of(*SHARED, f"ec={evolver}", "ec.lifetime=train", "ec.train_steps=64")
    while not population.evolver.generation:
        population.iterate()
    best = max(population.evolver.population, key=lambda one: one.objectives[0]).individual.memory
    population.fill_slots()
    (task, *_) = population.in_flight
    population.close()
    assert best is not None and best["steps"] > 0
    for child in task.individuals:
        assert child.memory is not None and child.memory["steps"] == best["steps"]
        assert torch.equal(mean_of(child.memory["learner"]), mean_of(best["learner"]))


def test_rl_normalize_inputs_says_whether_statistics_are_kept() -> None:
    for how in ("false", "true", "whiten"):
        experiment = experiment_of("mdp=pong", "ec=openai_es", f"rl.normalize_inputs={how}")
        assert experiment.ec is not None
        moments = evaluation_plan(experiment, experiment.ec).moments()
        assert (moments is not None) == (how != "false")
        assert moments is None or (isinstance(moments, Moments) and moments.whiten == (how == "whiten"))
