"""Games in real time, which go on while evorl does something else."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest
from remote_games import EPISODES, Records, opened

from evorl.mdp.core import Arena
from evorl.mdp.remote import Remote

HASTY = f"{sys.executable} {Path(__file__).parent}/hasty_game.py"


def answer(arena: Arena, slots: list[int]) -> None:
    arena.send(np.array(slots), np.zeros((len(slots), 1), np.int32))


def received(arena: Arena, slots: list[int]) -> dict[int, tuple[float, bool, float | None, float]]:
    """Of each of these slots: reward, whether its episode has ended, its fitness, and the number it sees."""
    got = dict[int, tuple[float, bool, float | None, float]]()
    while len(got) < len(slots):
        rows = arena.recv()
        results = dict(rows.results)
        assert not rows.failed
        for slot in rows.slots.tolist():
            fitness = results[slot]["fitness"] if slot in results else None
            got[slot] = (
                float(rows.reward[slot, 0]),
                bool(rows.terminated[slot]),
                fitness,
                float(rows.inputs[0][slot, 0]),
            )
    return got


@pytest.mark.parametrize("seconds", [0, 0.05])
def test_an_end_while_a_side_waits_is_the_outcome_of_that_decision(
    seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """With 0 seconds the end comes in one message with what the side asks."""
    slots = [0, 1, 2, 3]
    with opened(4, f"{HASTY} {seconds}") as arena:
        assert received(arena, slots) == dict.fromkeys(slots, (0.0, False, None, 0.0))
        for _ in range(3):
            time.sleep(0.15)  # evorl learns
            answer(arena, slots)
            ends = received(arena, slots)
            assert ends == {slot: (5.0, True, 7.0 + slot % 2, 0.0) for slot in slots}
    assert not caplog.messages


def test_the_other_side_of_the_battle_plays_on(caplog: pytest.LogCaptureFixture) -> None:
    with opened(2, f"{HASTY} 0 alone") as arena:
        received(arena, [0, 1])
        for acts in (1, 2):
            answer(arena, [1])
            assert received(arena, [1]) == {1: (1.0, False, None, float(acts))}
        answer(arena, [0, 1])
        ends = received(arena, [0, 1])
    assert ends == {0: (5.0, True, 7.0, 0.0), 1: (5.0, True, 8.0, 0.0)}
    assert not caplog.messages


def test_an_end_that_crosses_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """They meet at any time. Each end is the outcome of one decision, and the game gets no answer after an end."""
    with opened(16, f"{HASTY} 0.02") as arena:
        records = Records(arena).play(40, lambda number: time.sleep(0.003 * (number % 7)))
    ends = [row for rows in records.rows for row in rows if row[2][0]]
    assert len(ends) > 100 and all(row[1] == [5.0] for row in ends)
    assert not records.failed and not caplog.messages


def test_sumo_in_real_time_plays_on_while_evorl_learns(caplog: pytest.LogCaptureFixture) -> None:
    """Both discs run outward and leave the ring while evorl does not answer."""
    with opened(8, "node {clients}/javascript/sumo/sumo.js --realtime") as arena:
        for number in range(60):
            if number == 30:
                time.sleep(1.5)
            rows = arena.recv()
            assert not rows.failed
            place = rows.inputs[0][rows.slots]
            outward = np.round(np.arctan2(place[:, 1], place[:, 0]) / (np.pi / 4)).astype(np.int32) % 8 + 1
            arena.send(rows.slots, np.stack([outward, np.zeros_like(outward)], 1))
    assert not caplog.messages


def test_a_battle_that_is_lost_takes_its_kept_end_along() -> None:
    """An arena that is closed and opened again begins new battles, of which no old end is told."""
    world = Remote(command=f"{HASTY} 0.05", start_s=20.0, deadline_s=20.0)
    try:
        for _ in range(2):
            arena = world.arena(2, EPISODES)
            assert received(arena, [0, 1]) == {0: (0.0, False, None, 0.0), 1: (0.0, False, None, 0.0)}
            time.sleep(0.15)
            arena._battles.poll_now()  # type: ignore[attr-defined]
            (connection,) = arena._battles._rooms.values()  # type: ignore[attr-defined]
            assert len(connection._ends) == 2
            arena.close()
            assert not connection._ends
    finally:
        world.close()
