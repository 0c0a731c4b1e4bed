"""A learner of a plugin implements `Learner` alone. What reads the network of a learner says so in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, WORLDS, go

from evorl import evaluate, export
from evorl.rl.core import Learner
from evorl.rl.ppo import PPO


class Own:
    """A learner that does as another one, and is none of its kind."""

    def __init__(self, learner: Any) -> None:
        self.learner, self.update_input = learner, learner.update_input

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    made: Callable[..., Learner] = PPO.learner
    monkeypatch.setattr(PPO, "learner", lambda *arguments: Own(made(*arguments)))
    run = tmp_path / "run"
    assert go(*QUICK, *WORLDS["pong"], "budget.steps=128", f"hydra.run.dir={run}") == 0
    capsys.readouterr()
    return run


def test_its_network_is_nobodys(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main([f"run={run}", "episodes=1"]) == 0, "it trains, and is judged"
    own = f"knows no network of a {__name__}.Own, which is no evorl.rl.network_learner.NetworkLearner"
    new, out = tmp_path / "new", tmp_path / "out"
    for command, words, why in (
        (export.main, [f"run={run}", f"out={out}.onnx"], f"run: evorl.export {own}"),
        (evaluate.main, ["matrix=true", f"players=[{run},rule]", f"out={out}"], f"players: {run}: a game {own}"),
        (
            lambda words: go(*words), [*QUICK, *WORLDS["pong"], "opponents=past", f"hydra.run.dir={new}"],
            f"rl: a game against opponents {own}",
        ),
    ):  # fmt: skip
        capsys.readouterr()
        assert command(words) == 2
        assert capsys.readouterr().err == f"evorl: {why}\n"
    assert not new.exists() and [path.name for path in tmp_path.iterdir()] == ["run"]
