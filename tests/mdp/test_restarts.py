"""Worlds that fail again and again: when their episodes start again, and what the log says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from tiny import Walk

from evorl.mdp.battle_arena import BattleArena
from evorl.mdp.core import Arena, Array, EpisodeFailed, WorldError
from evorl.mdp.event_loop import PausingLoop
from evorl.mdp.gymnasium import Gymnasium, env_per_slot
from evorl.mdp.restarts import Restarts
from evorl.util.seed import Episodes

EPISODES = Episodes(7)
SLOTS = 8


class Server:
    """A game server that is away at some of the calls: 0, 1, ... Sleeping is a call of nothing."""

    def __init__(self) -> None:
        self.away: Callable[[int], bool] = lambda call: False
        self.calls = 0
        self.pauses: list[float] = []

    def call(self, *_: Any) -> None:
        self.calls += 1
        if self.away(self.calls - 1):
            raise ConnectionRefusedError("no server")


class Remote(gymnasium.Env[Any, Any]):
    server: Server
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, render_mode: str | None = None) -> None:
        pass

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        self.server.call()
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.server.call()
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Away when it is told so; pauses pass at once."""
    server, begun = Server(), time.monotonic()

    def pause(seconds: float) -> None:
        server.pauses.append(round(seconds, 2))

    async def of_a_battle(_: PausingLoop, seconds: float) -> None:
        server.pauses += [seconds] if seconds else []
        await asyncio.sleep(0)

    monkeypatch.setattr(env_per_slot, "pause", pause)
    monkeypatch.setattr(PausingLoop, "pause", of_a_battle)
    monkeypatch.setattr(time, "monotonic", lambda: begun + sum(server.pauses))
    return server


@pytest.fixture(params=["environments", "battles"])
def begin(request: pytest.FixtureRequest, server: Server) -> Iterator[Callable[[], Arena]]:
    if request.param == "battles":
        yield lambda: BattleArena(Walk(longest=10**6, event=server.call, entered=server.call), SLOTS, EPISODES)
        return
    Remote.server = server
    gymnasium.register("evorl-test/Remote-v0", entry_point=Remote)
    yield lambda: Gymnasium(id="evorl-test/Remote-v0").arena(SLOTS, EPISODES)
    del gymnasium.registry["evorl-test/Remote-v0"]


def act(arena: Arena) -> list[int]:
    """All slots act; return those that failed."""
    failed: list[int] = []
    arena.send(np.arange(SLOTS), np.zeros((SLOTS, 1), np.int64))
    waiting = set[int]()
    while len(waiting) < SLOTS:
        now = arena.recv()
        waiting |= set(now.slots.tolist())
        failed += now.failed
    return sorted(failed)


def test_a_server_that_goes_away_is_one_line_for_all(begin: Callable[[], Arena], server: Server, caplog: Any) -> None:
    with closing(begin()) as arena:
        arena.recv()
        went = server.calls
        server.away = lambda call: call < went + SLOTS  # each step of all slots, and none of their restarts
        assert act(arena) == list(range(SLOTS))
        assert act(arena) == [] and server.pauses == []
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(f", all {SLOTS} episodes: starting them again after ConnectionRefusedError('no server')")


def test_one_that_stays_away_is_given_time_to_come_back(begin: Callable[[], Arena], server: Server) -> None:
    with closing(begin()) as arena:
        arena.recv()
        server.away = lambda call: not server.pauses
        assert act(arena) == list(range(SLOTS))
        assert server.pauses == [5.0]  # once for all


def test_one_that_is_dead_ends_the_run_in_two_lines(begin: Callable[[], Arena], server: Server, caplog: Any) -> None:
    """It took a step before it died, and yet nobody's action is to blame: the episode cannot begin."""
    with closing(begin()) as arena:
        arena.recv()
        assert act(arena) == []
        server.away = lambda call: True
        with pytest.raises(WorldError, match=r"failed 3 times in the episode of slot 0 (?s:.*)no server") as caught:
            act(arena)
        assert caught.type is WorldError
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2 and "all 8 episodes" in lines[0] and lines[1].endswith("('no server'), in 5 s")


def test_a_world_that_steps_is_not_waited_for(begin: Callable[[], Arena], server: Server) -> None:
    """All slots step once, then fail in the next step, twice."""
    with closing(begin()) as arena:
        arena.recv()
        for _ in range(2):
            assert act(arena) == []
            first = server.calls
            server.away = lambda call, first=first: call < first + SLOTS
            assert act(arena) == list(range(SLOTS))
        assert server.pauses == []


def test_what_differs_is_told_apart(caplog: Any) -> None:
    restarts = Restarts("Walk", 3)
    for slot, error in enumerate((OSError("a"), OSError("b"), OSError("a"))):
        assert restarts.add(slot, 10 + slot, 1, 1, error) == 0
    restarts.tell()
    restarts.tell()
    assert [record.getMessage() for record in caplog.records] == [
        "Walk, 2 of 3 episodes: starting them again after OSError('a')",
        "Walk, slot 1, seed 11: starting the episode again after OSError('b')",
    ]


def test_an_episode_that_fails_again_and_again_is_one_episode(caplog: Any) -> None:
    restarts = Restarts("Walk", 2)
    for _ in range(2):  # a replay of it, and then its next decision
        restarts.add(1, 11, 1, True, OSError("a"))
    restarts.tell()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "Walk, slot 1, seed 11: starting the episode again after OSError('a')"


@pytest.mark.parametrize(("steps", "kind"), [(0, WorldError), (1, EpisodeFailed), (2, EpisodeFailed)])
def test_only_a_step_is_the_failure_of_its_episode(steps: int, kind: type[WorldError]) -> None:
    with pytest.raises(kind) as caught:
        Restarts("Walk", 1).add(0, 10, 3, steps, OSError("a"))
    assert caught.type is kind
