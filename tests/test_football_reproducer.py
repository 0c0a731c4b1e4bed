"""The table of football, without peers and hours: its words, what its peer is asked, and its rows."""

from __future__ import annotations

import json
import sys
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import numpy as np
import pytest

from benchmarks.lamarckian.football import CASES, PPO, TABLE, analyse, measured, peer_settings, rates
from evorl.analysis.runs import Series
from evorl.cli.config import experiment_of_words
from evorl.reproduction.loop import first_job
from evorl.reproduction.parts import Inputs, Sweep
from evorl.reproduction.table import Results
from evorl.util.errors import BadRequest

STAND_IN = str(Path(__file__).parent / "mdp" / "stand_in")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something in the place of the engine, which need not be built."""
    monkeypatch.syspath_prepend(STAND_IN)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The peer's program, without RLlib, which is not installed here."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks" / "lamarckian"))
    ray = MagicMock()
    for name in ("ray", "ray.rllib.algorithms.ppo", "ray.rllib.core.rl_module.default_model_config"):
        monkeypatch.setitem(sys.modules, name, ray)
    monkeypatch.delitem(sys.modules, "football_rllib", raising=False)
    import football_rllib

    return football_rllib


def test_every_sweep_composes() -> None:
    for profile in TABLE.profiles.values():
        for part in profile.parts:
            if isinstance(part, Sweep):
                made = experiment_of_words(first_job(part.words))
                assert made.mdp.longest_episode in (400, 3000)
    assert made.budget.steps == 150_000_000 and made.rl.slots * made.rl.horizon == made.rl.minibatch == 32_768


def test_the_peer_is_asked_what_its_program_takes(program: Any) -> None:
    for case in CASES.values():
        asked = json.loads(peer_settings((*PPO, *case.words), 3, 1000))
        assert {*asked} == {"cpus", "steps", *signature(program.ppo).parameters} and asked["seed"] == 3
    with pytest.raises(BadRequest, match="takes no words"):
        rates(case, Inputs(["rl.lr=1"], Path()))


def test_the_games_of_the_peer_step_together(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from evorl.mdp.football.process import POOLS

    monkeypatch.setenv("PYTHONPATH", STAND_IN)
    world: dict[str, Any] = {"scenario": "academy_empty_goal_close", "engine": "gfootball", "observation": "pictures"}
    world["rewards"] = ["scoring"]
    games = program.Games(world, 3, 0)
    try:
        seen, _ = games.reset()
        assert seen.shape == games.observation_space.shape == (3, 72, 96, 4) and seen.max() == 1
        for _ in range(5):
            seen, reward, *ends, _ = games.step(np.zeros(3, np.int64))
            assert games.observation_space.contains(seen) and reward.shape == (3,) and not np.any(ends)
    finally:
        games.close()
        POOLS.close("academy_empty_goal_close")


class Answering:
    """In the place of a live worker."""

    versions: ClassVar[dict[str, str]] = {}

    def __init__(self, python: Path, program: str, *words: str, stopped: bool = False) -> None:
        self.program = Path(program).stem
        assert not stopped or "rl.asynchronous=true" in words

    def rate(self, seconds: float) -> float:
        return {"ours": 3.0, "football_rllib": 2.0, "football_bare": 4.0}[self.program]

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_rates_are_of_those_whom_a_case_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.lamarckian import football
    from evorl.mdp.football import Football

    monkeypatch.setattr(football, "Worker", Answering)
    monkeypatch.setattr(Football, "ready", lambda self: None)
    found = {name: rates(case, Inputs([], Path()))["rates"] for name, case in CASES.items()}
    assert {name: {*each} for name, each in found.items()} == {
        "close-pictures": {"evorl", "RLlib", "bare"}, "close-numbers": {"evorl", "RLlib"},
        "run-numbers": {"evorl", "RLlib"}, "eleven-pictures": {"evorl", "bare"},
    }  # fmt: skip
    assert found["eleven-pictures"]["bare"] == [4.0] * football.ROUNDS


def run_of(name: str, seed: int, shares: list[float]) -> SimpleNamespace:
    steps = np.arange(1.0, len(shares) + 1) * 100
    series = {metric: Series(steps, steps / 10, np.array(shares)) for metric in ("eval/goals_mean", "eval/return_mean")}
    return SimpleNamespace(
        directory=Path(name) / str(seed), series=series, seed=seed, steps=steps[-1], last=lambda metric: shares[-1],
        label=name,
    )  # fmt: skip


def test_rows_say_rates_and_when_the_goals_were_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.lamarckian import football

    monkeypatch.setattr(football, "median_policies", lambda runs: ({}, football.Rows(("policy",), [])))
    runs: Any = [run_of("close-numbers", 0, [0.5, 0.96, 0.9]), run_of("close-numbers", 1, [0.5, 0.6, 0.7])]
    told = {
        "football-rates/close-pictures": {"rates": {"evorl": [30.0, 20.0, 40.0], "RLlib": [10.0], "bare": [40.0]}},
        "football-rates/eleven-pictures": {"rates": {"evorl": [9.0], "bare": [10.0]}},
        "football-peer/0": {"rows": [[5.0, 2048, 0.2], [9.0, 4096, 0.97]]},
    }
    assert analyse(Results("ci", [], {})) is None
    found = analyse(Results("ci", runs, told))
    assert found is not None
    close, eleven = found.rows
    assert close == ["empty goal close, pictures, EnvPool", "30", "10", "3.00", "40", "75%"]
    assert eleven[1:] == ["9", "-", "-", "10", "90%"]
    ours, theirs = found.also[0].rows
    assert ours[:2] == ["evorl, empty goal close, 115 numbers", "2"] and ours[3:] == [">= 25", ">= 250"]
    assert theirs[1:] == ["1", "0.97", "9", "4,096"]
    words = measured(json.loads(json.dumps(found.data)))
    assert "3.00 times RLlib's steps per second" in words and "(seeds: 2)" in words
    assert found.notes == [
        "Not run: learning of empty goal close, pictures, EnvPool, seeds 0-4; rates of empty goal close, 115 numbers; "
        "learning of empty goal close, 115 numbers, seeds 2-4; rates of run to score, 115 numbers; learning of run to "
        "score, 115 numbers, seeds 0-4; learning of the peer, seeds 1-2."
    ]
