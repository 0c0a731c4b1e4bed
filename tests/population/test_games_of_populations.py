"""Individuals play in the game that the first of them has started (`mdp=remote`), and it ends with the population."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from harness import experiment_of

from evorl.ec.core import IndependentEvolution, pack
from evorl.mdp.remote import Remote
from evorl.mdp.remote.server import SERVERS
from evorl.mdp.shaped import scales
from evorl.population.evaluation import evaluation_plan
from evorl.population.loop import Population
from evorl.training.experiment import Experiment
from evorl.util.errors import BadRequest

SMALL = ("rl=ppo", "rl.slots=2", "rl.horizon=8", "rl.minibatch=16", "rl.passes=1", "rl.net.hidden=[4]")
LIVES = {
    "train": ("ec.lifetime=train", "ec.train_steps=16"),
    "genes of rewards": ("ec.lifetime=train", "ec.train_steps=16", "ec.reward.kind=potential"),
    "balance": ("ec.lifetime=balance", "ec.train_steps=16", "ec.objectives=[evenness]"),
    "genes of the world": ("ec.lifetime=play", "+ec.genes.mdp.deadline_s=[10.0,20.0]"),
}


def population(life: str, log: Path, *more: str) -> Experiment:
    """Three individuals of tag, whose starts are lines of a file."""
    words = ("mdp=pong", *SMALL, "ec=sga", "ec.population=3", "ec.episodes=2", "eval.episodes=2", *LIVES[life], *more)
    command = f"bash -c 'echo started >> {log}; exec {{python}} {{clients}}/python/tag.py'"
    return replace(experiment_of(*words), mdp=Remote(command=command))


@pytest.fixture(autouse=True)
def short_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.shaped.DECISIONS", 20)


@pytest.mark.parametrize("life", LIVES)
def test_a_population_starts_its_game_once(life: str, tmp_path: Path) -> None:
    experiment = population(life, tmp_path / "log")
    assert isinstance(experiment.ec, IndependentEvolution)
    with closing(Population(experiment, experiment.ec)) as loop:
        for _ in range(3):
            loop.iterate()
        if loop.plan.evaluate is not None:
            assert loop.leader is not None
            loop.plan.evaluate(loop.leader.individual)
        assert loop.evaluations == 3 and loop.failed == 0
    assert (tmp_path / "log").read_text() == "started\n"
    assert not SERVERS._all and not SERVERS._users


def test_an_evaluator_of_a_worker_keeps_its_game_until_it_is_closed(tmp_path: Path) -> None:
    experiment = population("genes of rewards", tmp_path / "log")
    assert isinstance(experiment.ec, IndependentEvolution)
    plan = evaluation_plan(experiment, experiment.ec)
    experiment.mdp.close()  # as if it had been another process
    (tmp_path / "log").unlink()
    with closing(plan.make(0)) as evaluator:
        assert not SERVERS._all, "it starts nothing by itself"
        scales(experiment.mdp)
        for individual in experiment.ec.evolver(plan.space).ask(2):
            evaluator.evaluate(pack([individual]))
        assert SERVERS._all
    assert (tmp_path / "log").read_text() == "started\n" and not SERVERS._all and not SERVERS._users


def test_a_population_that_is_refused_leaves_no_game(tmp_path: Path) -> None:
    experiment = population("train", tmp_path / "log", "ec.objectives=[nothing]")
    assert isinstance(experiment.ec, IndependentEvolution)
    with pytest.raises(BadRequest, match="nothing"):
        Population(experiment, experiment.ec)
    assert (tmp_path / "log").exists()
    assert not SERVERS._all and not SERVERS._users
