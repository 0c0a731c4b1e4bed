"""Which checkpoint of a run is its best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import Faulty, newest, train_in

from evorl.ec.sga import SGA
from evorl.jobs.saved_policies import checkpoint_of
from evorl.nets.policy import Net
from evorl.record import checkpoint
from evorl.record.core import Record
from evorl.rl.ppo import PPO
from evorl.training.experiment import Budget, Checkpoints, Evaluation, Experiment
from evorl.util.errors import BadRequest


def save(directory: Path, step: int, best: int | None, **more: Any) -> None:
    run = {"steps": step, "best": None if best is None else [1.0, best], "learner": None, **more}
    checkpoint.save(directory, step, {"run": run}, 2, checkpoint.best_step(run))


def test_the_best_checkpoint_is_that_of_the_best_evaluation(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        save(tmp_path, step, 10)
    assert checkpoint.steps(tmp_path) == [10, 30, 40]
    path, run = checkpoint_of(tmp_path, "best")
    assert path.name == "10" and run["steps"] == 10


def test_a_best_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The disk was full when it was due, or somebody has removed it."""
    save(tmp_path, 10, None)
    with pytest.raises(BadRequest, match=r"checkpoint: .* has evaluated nothing yet"):
        checkpoint_of(tmp_path, "best")
    save(tmp_path, 30, 20)
    with pytest.raises(BadRequest, match=r"checkpoint: .* has no checkpoint of step 20, its best one, any more"):
        checkpoint_of(tmp_path, "best")


def test_the_best_individual_is_in_the_newest_checkpoint(tmp_path: Path) -> None:
    """It was evaluated at a step of its own, of which there may be a checkpoint by chance."""
    run = tmp_path / "run"
    train_in(run, Experiment(
        mdp=Faulty(length=3), rl=PPO(slots=1, horizon=4, minibatch=4, net=Net(hidden=())),
        ec=SGA(population=4, episodes=1, together=2), record=Record(tensorboard=False, hardware=False),
        budget=Budget(steps=30), eval=Evaluation(every=0, episodes=1), checkpoint=Checkpoints(every=6, keep=1),
    ))  # fmt: skip
    state = newest(run)["run"]
    assert state["best"][1] < state["steps"] and checkpoint.steps(run) == [state["steps"]]
    path, found = checkpoint_of(run, "best")
    assert path.name == str(state["steps"]) and found["steps"] == state["steps"]
