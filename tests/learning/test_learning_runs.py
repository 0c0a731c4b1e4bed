"""Whole runs learn: short ones with room to spare, and, marked, the long ones that show the figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import Recall, go, train_in

from evorl.nets.policy import Net
from evorl.record.core import Record
from evorl.rl.ppo import PPO
from evorl.train import Budget, Checkpoints, Evaluation, Experiment


def learned(tmp_path: Path, *words: str) -> dict[str, Any]:
    """What result.json holds after a run with these words."""
    usual = ("record.tensorboard=false", "checkpoint.every=0", "seed=1", f"hydra.run.dir={tmp_path / 'run'}")
    assert go(*words, *usual) == 0
    result: dict[str, Any] = json.loads((tmp_path / "run" / "result.json").read_bytes())
    return result


def test_cartpole(tmp_path: Path) -> None:
    assert learned(tmp_path, "mdp=cartpole", "budget.fitness=475", "eval.every=5000")["fitness"] >= 475


def test_pendulum(tmp_path: Path) -> None:
    """Untrained it returns -1200."""
    words = ("mdp=pendulum", "budget.fitness=-250", "eval.every=10000", "budget.steps=100000")
    assert learned(tmp_path, *words)["fitness"] >= -250


def test_pong_against_the_rule_player(tmp_path: Path) -> None:
    """Untrained it scores -15 and less; here it gets to -4 to -9, by seed."""
    result = learned(tmp_path, "mdp=pong", "eval.every=0", "eval.episodes=30", "budget.steps=1500000")
    assert result["eval"]["score_mean"] > -12


def test_duel_against_the_rule_player(tmp_path: Path) -> None:
    """Untrained, a knight dies unavenged (-1.9); here it does so less and less, and beats a frail archer at times."""
    world = ("mdp=duel", "mdp.side=knight", "mdp.archer.health=30")
    learner = ("rl.slots=32", "rl.horizon=32", "rl.minibatch=256", "rl.lr=1e-3", "rl.entropy_coef=0.01")
    result = learned(tmp_path, *world, *learner, "eval.every=0", "budget.steps=200000")
    assert result["eval"]["return_mean"] > -1.2 and result["eval"]["win_mean"] > 0.05


@pytest.mark.parametrize("lstm", [16, 0])
def test_a_cue_is_remembered_with_an_lstm_and_only_with_one(lstm: int, tmp_path: Path) -> None:
    rl = PPO(slots=32, horizon=20, minibatch=160, passes=4, lr=5e-3, gamma=0.95, net=Net(hidden=(32,), lstm=lstm))
    recall = Experiment(
        mdp=Recall(), rl=rl, record=Record(tensorboard=False), budget=Budget(steps=40_000, fitness=0.98),
        eval=Evaluation(every=4_000, episodes=100), checkpoint=Checkpoints(every=0),
    )  # fmt: skip
    fitness = train_in(tmp_path / "run", recall)["fitness"]
    assert fitness >= 0.98 if lstm else 0.3 < fitness < 0.7


# ------------------------------------------------------------------ the long ones


@pytest.mark.learn
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pong_by_the_default_command(seed: int, tmp_path: Path) -> None:
    assert go(f"seed={seed}", f"hydra.run.dir={tmp_path / 'run'}") == 0
    assert json.loads((tmp_path / "run" / "result.json").read_bytes())["eval"]["score_mean"] >= 15


LONG = {
    "a2c": (475, "mdp=cartpole", "rl=a2c", "budget.steps=500000", "eval.every=20000"),
    "reinforce": (475, "mdp=cartpole", "rl=reinforce", "budget.steps=800000", "eval.every=20000"),
    "lunarlander": (200, "mdp=lunarlander", "eval.every=100000"),
    "halfcheetah": (1500, "mdp=halfcheetah"),
}


@pytest.mark.learn
@pytest.mark.parametrize("name", LONG)
def test_other_algorithms_and_worlds(name: str, tmp_path: Path) -> None:
    enough, *words = LONG[name]
    assert learned(tmp_path, *map(str, words), f"budget.fitness={enough}")["fitness"] >= float(enough)
