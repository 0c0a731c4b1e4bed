"""Workers are not blamed for what their driver did not hear."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import cluster_toys as toys

from evorl.cluster.processes import Processes

DEADLINE_S = 1.0


def compute(seconds: float) -> None:
    """A learner's update: nothing is heard meanwhile."""
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass


def test_a_successor_may_come_between_updates_that_outlast_the_deadline() -> None:
    """To be let in, to greet and to get its members it needs the driver again and again, which seldom listens."""
    group: Any = Processes(workers=2, deadline_s=DEADLINE_S).spawn(toys.Counter, 2)
    try:
        stream = group.gather("fragment", 10)
        next(stream)
        os.kill(group.pool.handles[0].pid, signal.SIGKILL)
        while not group.pool.replaced:
            next(stream)
        for _ in range(20):  # four or so, where the machine is not busy
            compute(1.5 * DEADLINE_S)
            next(stream)
            if group.pool.handles[0].ready:
                break
        assert group.pool.handles[0].ready
        assert group.pool.replaced == 1
    finally:
        group.close()


class Deaf(dict[bytes, Any]):
    """Takes every worker for a stranger."""

    def get(self, *_: object) -> None:
        return None


def test_one_that_never_greets_is_late_all_the_same() -> None:
    group: Any = Processes(workers=2, deadline_s=DEADLINE_S).spawn(toys.Counter, 2)
    try:
        os.kill(group.pool.handles[0].pid, signal.SIGKILL)
        while not group.pool.replaced:
            group.poll(0.01)
        handle = group.pool.handles[0]
        group.pool._by_name = Deaf(group.pool._by_name)
        while group.pool.replaced < 2:
            assert not handle.host
            group.poll(0.01)
        group.pool._by_name = dict(group.pool._by_name)
        assert [answer[0] for answer in group.all("add", 1)] == [0, 1]
    finally:
        group.close()
