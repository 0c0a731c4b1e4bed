"""Delays take wall time and change nothing else."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from test_arena import EPISODES, Driver
from tiny import Walk

from evorl.mdp.delay import Delayed
from evorl.mdp.duel import Duel
from evorl.util.seed import Episodes, generator

Slept = list[float]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> Slept:
    """The times that were slept, in seconds; they pass at once."""
    times: Slept = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        times.append(seconds)
        await real(0)

    monkeypatch.setattr("evorl.mdp.delay.asyncio.sleep", sleep)
    return times


def test_a_delayed_world_has_the_same_episodes(slept: Slept) -> None:
    with closing(Walk(sides=2).arena(4, EPISODES)) as arena:
        expected = Driver(arena).play(20)
    assert not slept
    with closing(Walk(sides=2, delay_ms=(3, 9)).arena(4, EPISODES)) as arena:
        assert Driver(arena).play(20) == expected
    assert len(slept) >= 4 * 20 - 8  # one for each answer
    assert 0.003 <= min(slept) < 0.004 and 0.008 < max(slept) <= 0.009


def test_delays_are_keyed(slept: Slept) -> None:
    async def play(seed: int) -> Slept:
        slept.clear()
        async with Delayed(Walk(longest=1, sides=2), (0, 100)).reset(0, 1, seed=seed) as battle:
            for side in battle.controllers:
                await side(np.array([0]))
        return slept.copy()

    first, again, other = asyncio.run(play(4)), asyncio.run(play(4)), asyncio.run(play(5))
    assert first == again and first[0] != first[1] and first != other
    assert first[0] == generator("delay", 4, 0).uniform(0, 100) / 1000


def test_a_replay_does_not_sleep(slept: Slept) -> None:
    world = Walk(longest=99, delay_ms=(3, 9))
    with closing(world.arena(3, EPISODES)) as arena, closing(world.arena(3, EPISODES)) as fresh:
        driver = Driver(arena)
        driver.play(6)
        state, before = arena.state_dict(), [list(rows) for rows in driver.seen]
        slept.clear()
        fresh.load_state_dict(state)
        assert not slept
        other = Driver(fresh)
        other.recv()
        other.seen = before
        course, times = driver.play(9), slept.copy()
        slept.clear()
        assert other.play(9) == course
        assert slept == times  # the draws went on as if it had slept


@dataclass(frozen=True, kw_only=True)
class OneSlow(Walk):
    """Long episodes; in the first one of slot ``slow`` a decision takes an hour."""

    slow: int

    def reset(self, *players: int, seed: int) -> Any:
        quick = Walk(longest=99)
        slow = seed == EPISODES(self.slow, 0)
        return (Delayed(quick, (3_600_000, 3_600_000)) if slow else quick).reset(*players, seed=seed)


def test_slots_in_flight_are_returned_after_waiting_slots() -> None:
    """A decision that still slept when the state was saved is back at once when loaded, and is told apart."""
    world = OneSlow(slow=1)
    with closing(world.arena(2, EPISODES)) as arena, closing(world.arena(2, EPISODES)) as fresh:
        driver = Driver(arena)
        driver.recv()
        driver.send()
        assert driver.recv().slots.tolist() == [0]
        fresh.load_state_dict(arena.state_dict())
        now = fresh.recv()
        assert now.slots.tolist() == [0] and now.cost == 0
        assert fresh.state_dict()["waits"].tolist() == [True, False]
        now = fresh.recv()
        assert now.slots.tolist() == [1] and now.cost > 0 and now.reward[1].any()


def test_delays_take_wall_time() -> None:
    """On the loop's own clock, so that a busy machine cannot make it fail."""

    async def play() -> float:
        loop = asyncio.get_running_loop()
        async with Delayed(Walk(), (20, 20)).reset(0, seed=1) as battle:
            start = loop.time()
            await battle.controllers[0](np.array([0]))
            return loop.time() - start

    assert asyncio.run(play()) >= 0.0199


def test_one_slow_battle_among_quick_ones() -> None:
    with closing(OneSlow(slow=0).arena(3, EPISODES)) as arena:
        driver = Driver(arena)
        driver.recv()
        for _ in range(50):
            driver.send()
            assert driver.recv().slots.tolist() == [1, 2]


def test_delay_passes_on_pictures_and_results() -> None:
    for world in (Duel(delay_ms=(0, 0)), Walk(delay_ms=(0, 0))):
        with closing(world.arena(1, Episodes(0))) as arena:
            arena.recv()
            picture = arena.render()
            assert picture is not None and picture.dtype == np.uint8


@pytest.mark.parametrize("delay_ms", [(2, 1), (-1, 1)])
def test_impossible_ranges_are_refused(delay_ms: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="delay_ms: expected"):
        Walk(delay_ms=delay_ms)
