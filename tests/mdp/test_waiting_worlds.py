"""A signal ends the wait for a world that does not answer, where what waits may be given up."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from remote_games import FAULTY
from test_godot_rl import GAME
from tiny import Walk

from evorl.cluster.core import Stopped, stoppable
from evorl.mdp.core import World
from evorl.mdp.gymnasium import Gymnasium
from evorl.mdp.remote import Remote
from evorl.nets.policy import Net
from evorl.rl.evaluation import play_episodes
from evorl.rl.ppo import PPO
from evorl.training.train import spec
from evorl.util.seed import Episodes
from evorl.util.stop import pause, stop_requested


class FailsTwice(gymnasium.Env[Any, Any]):
    """The first two resets of a process fail."""

    resets = 0

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        fail_twice(FailsTwice)
        return np.zeros(1, np.float32), {}


@dataclass(frozen=True, kw_only=True)
class BattleFailsTwice(Walk):
    resets: ClassVar[int] = 0

    def reset(self, *players: int, seed: int) -> Any:
        fail_twice(BattleFailsTwice)
        return super().reset(*players, seed=seed)


def fail_twice(kind: Any) -> None:
    kind.resets += 1
    if kind.resets <= 2:
        raise ConnectionError("no server")


async def never(*told: object) -> None:
    await asyncio.sleep(3600)


@pytest.mark.parametrize("kind", ["battles", "remote", "godot_rl"])
def test_a_signal_ends_an_evaluation_that_waits_for_its_world(kind: str, tmp_path: Path) -> None:
    """The games below freeze, and nothing else would end the wait for them within an hour."""
    commands = {
        "remote": f"{FAULTY} freeze {tmp_path / 'mark'} 3",
        "godot_rl": f"{GAME} blind {tmp_path / 'mark'}",
    }
    protocol: Any = "evorl" if kind == "remote" else kind
    world = (
        Walk(event=never) if kind == "battles" else Remote(protocol=protocol, command=commands[kind], deadline_s=3600.0)
    )
    asked = threading.Event()
    told = stop_requested.set(asked.is_set)
    timer = threading.Timer(1.0, asked.set)
    with closing(world):
        learner = PPO(net=Net(hidden=(4,))).learner(spec(world), 0, torch.device("cpu"))
        timer.start()
        try:
            with stoppable(), pytest.raises(Stopped):
                play_episodes(learner, world, 0, 3, deterministic=True)
        finally:
            stop_requested.reset(told)
            timer.cancel()


@pytest.mark.parametrize(
    "world", [Gymnasium(id="test_waiting_worlds:FailsTwice"), BattleFailsTwice()], ids=["env", "battle"]
)
def test_a_signal_ends_a_pause_in_what_may_not_be_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An iteration of a learner, say: it goes on at once, so that the run can stop after it."""
    monkeypatch.setattr("evorl.mdp.restarts.PAUSES_S", (0.0, 600.0))
    FailsTwice.resets = BattleFailsTwice.resets = 0
    asked = threading.Event()
    told, timer = stop_requested.set(asked.is_set), threading.Timer(0.5, asked.set)
    timer.start()
    try:
        with closing(world.arena(world.sides, Episodes(0, "test"))) as arena:
            assert arena.recv().slots.tolist() == list(range(world.sides))
    finally:
        stop_requested.reset(told)
        timer.cancel()
    assert max(FailsTwice.resets, BattleFailsTwice.resets) == 3


def test_a_pause_is_given_up_where_that_is_allowed() -> None:
    told = stop_requested.set(lambda: True)
    try:
        pause(600.0)
        with stoppable(), pytest.raises(Stopped):
            pause(600.0)
    finally:
        stop_requested.reset(told)
