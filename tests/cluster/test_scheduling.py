"""Whose turn it is: always somebody with least to do, whatever happened before."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import pytest

from evorl.cluster.workers.scheduling import Turns

MOST = 8


@dataclass
class Somebody:
    number: int
    under_way: int = 0
    room: int = 1


@pytest.mark.parametrize("seed", range(5))
def test_the_least_busy_who_has_room_is_next(seed: int) -> None:
    draw, turns = random.Random(seed), Turns[Somebody](MOST)
    everybody = [Somebody(n) for n in range(6)]
    for one in everybody:
        turns.note(one)
    for _ in range(2000):
        one = draw.choice(everybody)
        one.under_way, one.room = draw.randrange(MOST + 3), draw.randrange(MOST + 1)
        turns.note(one)
        known = [one for one in everybody if one.under_way < one.room]
        least = turns.least()
        assert (least is None) == (not known)
        assert least is None or (least in known and least.under_way == min(one.under_way for one in known))
        assert turns.idle() == any(one.under_way == 0 for one in known)


def test_who_has_waited_longest_is_first() -> None:
    turns = Turns[Somebody](MOST)
    for n in (3, 1, 2):
        turns.note(Somebody(n))
    first = turns.least()
    assert first is not None and first.number == 3
    turns.note(first)  # served, and back again
    second = turns.least()
    assert second is not None and second.number == 1


def test_what_it_costs_does_not_grow_with_their_number() -> None:
    def seconds(count: int) -> float:
        turns, best = Turns[Somebody](MOST), float("inf")
        for n in range(count):
            turns.note(Somebody(n, 0, MOST))
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(2000):
                one = turns.least()
                assert one is not None
                one.under_way = (one.under_way + 1) % MOST
                turns.note(one)
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(5000) < 5 * seconds(10)  # a search would take 500 times as long
