"""The scheduler always chooses a worker with the fewest calls."""

from __future__ import annotations

import random
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


class Counted:
    """A worker that counts how often anyone looks at one."""

    looks = 0

    def __init__(self, number: int) -> None:
        self.number, self.calls, self.capacity = number, 0, MOST

    @property
    def assigned(self) -> int:
        Counted.looks += 1
        return self.calls


def test_a_choice_looks_at_as_many_workers_however_many_there_are() -> None:
    def looks(count: int) -> int:
        scheduler = Scheduler[Counted](MOST)
        for n in range(count):
            scheduler.update(Counted(n))
        before = Counted.looks
        for _ in range(2000):
            one = scheduler.least_loaded()
            assert one is not None
            one.calls = (one.calls + 1) % MOST
            scheduler.update(one)
        return Counted.looks - before

    assert looks(5000) == looks(10) > 0
