"""Deadlines of workers do not include pauses of the driver."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cluster_toys as toys
import pytest

from evorl.cluster.core import MemberLost
from evorl.cluster.processes import Processes
from evorl.cluster.workers.heartbeats import GRACE_S, KILL_TIMEOUT_S, HeartbeatMonitor

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


# ------------------------------------------------------------------ who is past the deadline


def test_who_is_past_its_deadline_is_killed_once() -> None:
    """A second kill would count another of its ends; a deadline that is just reached is not past."""
    killed = list[int]()
    launcher: Any = SimpleNamespace(exits=list, kill=lambda worker, life: killed.append(worker))
    silent = {0: DEADLINE_S + 0.5, 1: DEADLINE_S, 2: 0.0}
    handles: Any = [worker(number, seconds) for number, seconds in silent.items()]
    monitor = HeartbeatMonitor(launcher, handles, DEADLINE_S)
    received = list[float]()
    assert [*monitor.kill_overdue(waited(received))] == [] and killed == [0]
    assert received and max(received) <= GRACE_S, "a sign may be on its way"
    received.clear()
    assert [*monitor.kill_overdue(waited(received))] == [] and killed == [0] and not received
    handles[0].process.signs.seconds = DEADLINE_S + KILL_TIMEOUT_S + 0.5
    (end,) = monitor.kill_overdue(waited(received))
    assert end.worker == 0 and end.why == f"gave no sign for {DEADLINE_S:g} s" and killed == [0]


def test_the_time_that_a_kill_takes_is_no_silence_of_others() -> None:
    """The driver receives nothing meanwhile."""
    killed = list[int]()
    handles: Any = [worker(0, DEADLINE_S + 0.5), worker(1, DEADLINE_S - 0.1)]

    def kill(number: int, life: int) -> None:
        killed.append(number)
        handles[1].process.signs.seconds += 1.0

    launcher: Any = SimpleNamespace(exits=list, kill=kill)
    monitor = HeartbeatMonitor(launcher, handles, DEADLINE_S)
    assert [*monitor.kill_overdue(waited([]))] == [] and killed == [0]


def test_a_sign_in_delivery_saves_a_worker() -> None:
    killed = list[int]()
    launcher: Any = SimpleNamespace(exits=list, kill=lambda worker, life: killed.append(worker))
    handles: Any = [worker(0, DEADLINE_S + 0.5)]

    def arrives(seconds: float) -> None:
        handles[0].process.signs.seconds = 0.0
        time.sleep(seconds)

    assert [*HeartbeatMonitor(launcher, handles, DEADLINE_S).kill_overdue(arrives)] == [] and killed == []


def waited(received: list[float]) -> Callable[[float], None]:
    def receive(seconds: float) -> None:
        received.append(seconds)
        time.sleep(seconds)

    return receive


class FixedSigns:
    """Signs of a worker that is silent for this long."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.overdue = seconds, False

    def silence(self, working: bool) -> float:
        assert working
        return self.seconds


def worker(number: int, seconds: float) -> SimpleNamespace:
    process = SimpleNamespace(life=1, signs=FixedSigns(seconds))
    return SimpleNamespace(number=number, process=process, ready=True, calls=SimpleNamespace(in_flight=[1]))
