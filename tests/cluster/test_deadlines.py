"""Deadlines of workers do not include pauses of the driver."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import cluster_toys as toys
import pytest

from evorl.cluster.core import MemberLost
from evorl.cluster.processes import Processes

DEADLINE_S = 1.0


def compute(seconds: float) -> None:
    """Compute as a learner does, without receiving messages."""
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass


@pytest.mark.fault
def test_a_worker_is_replaced_between_updates_longer_than_the_deadline() -> None:
    """Authentication, hello and making members each need a driver that seldom receives."""
    group: Any = Processes(workers=2, deadline_s=DEADLINE_S).spawn(toys.Counter, 2)
    try:
        stream = group.gather("fragment", 10)
        next(stream)
        os.kill(group.pool.handles[0].process.pid, signal.SIGKILL)
        while not group.pool.replaced:
            next(stream)
        for _ in range(20):  # about four on an idle machine
            compute(1.5 * DEADLINE_S)
            next(stream)
            if group.pool.handles[0].ready:
                break
        assert group.pool.handles[0].ready
        assert group.pool.replaced == 1
    finally:
        group.close()


@pytest.mark.fault
def test_a_call_longer_than_the_deadline_goes_on_while_it_says_so() -> None:
    group: Any = Processes(workers=1, deadline_s=DEADLINE_S).spawn(toys.Counter, 1)
    try:
        assert group.any("work", 3 * DEADLINE_S).result() == group.pool.handles[0].process.pid
        assert group.pool.replaced == 0
        with pytest.raises(MemberLost):
            group.any("drowse", 3 * DEADLINE_S).result()
    finally:
        group.close()


class NoNames(dict[bytes, Any]):
    """A table in which every worker is unknown."""

    def get(self, *_: object) -> None:
        return None


def test_a_worker_that_never_sends_hello_is_replaced() -> None:
    group: Any = Processes(workers=2, deadline_s=DEADLINE_S).spawn(toys.Counter, 2)
    try:
        os.kill(group.pool.handles[0].process.pid, signal.SIGKILL)
        while not group.pool.replaced:
            group.poll(0.01)
        handle = group.pool.handles[0]
        group.pool.inbox._by_name = NoNames(group.pool.inbox._by_name)
        while group.pool.replaced < 2:
            assert not handle.host
            group.poll(0.01)
        group.pool.inbox._by_name = dict(group.pool.inbox._by_name)
        assert [answer[0] for answer in group.all("add", 1)] == [0, 1]
    finally:
        group.close()
