"""The scheduler always chooses a worker with the fewest calls."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import pytest

from evorl.cluster.workers.scheduling import Scheduler

MOST = 8


@dataclass
class FakeWorker:
    number: int
    assigned: int = 0
    capacity: int = 1


@pytest.mark.parametrize("seed", range(5))
def test_the_least_loaded_worker_with_capacity_is_next(seed: int) -> None:
    draw, scheduler = random.Random(seed), Scheduler[FakeWorker](MOST)
    workers = [FakeWorker(n) for n in range(6)]
    for one in workers:
        scheduler.update(one)
    for _ in range(2000):
        one = draw.choice(workers)
        one.assigned, one.capacity = draw.randrange(MOST + 3), draw.randrange(MOST + 1)
        scheduler.update(one)
        known = [one for one in workers if one.assigned < one.capacity]
        least = scheduler.least_loaded()
        assert (least is None) == (not known)
        assert least is None or (least in known and least.assigned == min(one.assigned for one in known))
        assert scheduler.has_idle() == any(one.assigned == 0 for one in known)


def test_the_worker_updated_first_is_chosen() -> None:
    scheduler = Scheduler[FakeWorker](MOST)
    for n in (3, 1, 2):
        scheduler.update(FakeWorker(n))
    first = scheduler.least_loaded()
    assert first is not None and first.number == 3
    scheduler.update(first)  # it had a call and is idle again
    second = scheduler.least_loaded()
    assert second is not None and second.number == 1


def test_time_does_not_grow_with_the_number_of_workers() -> None:
    def seconds(count: int) -> float:
        scheduler, best = Scheduler[FakeWorker](MOST), float("inf")
        for n in range(count):
            scheduler.update(FakeWorker(n, 0, MOST))
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(2000):
                one = scheduler.least_loaded()
                assert one is not None
                one.assigned = (one.assigned + 1) % MOST
                scheduler.update(one)
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(5000) < 5 * seconds(10)  # a linear search takes 500 times as long
