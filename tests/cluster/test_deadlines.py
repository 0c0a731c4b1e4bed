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
        os.kill(group.crew.seats[0].pid, signal.SIGKILL)
        while not group.crew.replaced:
            next(stream)
        for _ in range(20):  # four or so, where the machine is not busy
            compute(1.5 * DEADLINE_S)
            next(stream)
            if group.crew.seats[0].ready:
                break
        assert group.crew.seats[0].ready
        assert group.crew.replaced == 1
    finally:
        group.close()


class Deaf(dict[bytes, Any]):
    """Takes every worker for a stranger."""

    def get(self, *_: object) -> None:
        return None


def test_one_that_never_greets_is_late_all_the_same() -> None:
    group: Any = Processes(workers=2, deadline_s=DEADLINE_S).spawn(toys.Counter, 2)
    try:
        os.kill(group.crew.seats[0].pid, signal.SIGKILL)
        while not group.crew.replaced:
            group.poll(0.01)
        seat = group.crew.seats[0]
        group.crew._named = Deaf(group.crew._named)
        while group.crew.replaced < 2:
            assert not seat.host
            group.poll(0.01)
        group.crew._named = dict(group.crew._named)
        assert [answer[0] for answer in group.all("add", 1)] == [0, 1]
    finally:
        group.close()
