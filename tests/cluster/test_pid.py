"""Processes whose numbers may be another's by now."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from evorl.cluster.processes import orphans
from evorl.cluster.processes.orphans import SUPERVISORS, ProcessTable
from evorl.cluster.processes.pid import Pid


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group of two, and is none of ours to end."""
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo; wait"], stdout=subprocess.PIPE, process_group=0) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def former(process: subprocess.Popen[bytes]) -> Pid:
    """One that had its number earlier."""
    return Pid.of(process.pid)._replace(began=Pid.of(os.getpid()).began - 1)


def test_a_number_that_is_anothers_is_left_alone(other: subprocess.Popen[bytes]) -> None:
    gone = former(other)
    assert gone.replaced()
    with pytest.raises(ProcessLookupError):
        gone.open()
    before = os.listdir("/proc/self/fd")
    gone.kill()
    orphans.kill_group(gone)
    roll = ProcessTable(1)
    roll.worker(0, gone)
    roll.end_workers()
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0.1)


def test_who_dies_late_leaves_its_successor_on_the_roll(other: subprocess.Popen[bytes]) -> None:
    roll, gone = ProcessTable(1), former(other)
    roll.worker(0, gone)
    roll.worker(0, Pid.of(other.pid))
    roll.remove(0, gone)
    roll.end_workers()
    assert other.wait(5) == -signal.SIGKILL


def test_who_is_gone_is_struck_off(other: subprocess.Popen[bytes]) -> None:
    roll, pid = ProcessTable(1), Pid.of(other.pid)
    roll.worker(0, pid)
    roll.remove(0, pid)
    roll.end_workers()
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0.1)


def test_its_own_process_is_ended_with_its_group(other: subprocess.Popen[bytes]) -> None:
    pid = Pid.of(other.pid)
    handle = pid.open()
    orphans.kill_group(pid)
    assert select.select([handle], [], [], 5.0)[0]
    os.close(handle)
    assert other.stdout is not None and other.stdout.read() == b""  # the other one had it, too
    assert other.wait() == -signal.SIGKILL
    assert not pid.replaced()
    pid.kill()  # nobody


def test_who_is_gone_leaves_its_group_to_be_ended() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo"], stdout=subprocess.PIPE, process_group=0) as leader:
        pid = Pid.of(leader.pid)
        leader.wait()
        orphans.kill_group(pid)
        assert leader.stdout is not None and leader.stdout.read() == b"\n"  # which ends with the last who had it


def test_a_roll_knows_who_is_there() -> None:
    roll, pids = ProcessTable(2), [Pid(3, 1 << 40), Pid(1 << 22, 5)]
    for place, pid in enumerate(pids[:SUPERVISORS]):
        roll.set_supervisor(place, pid)
    assert roll.supervisors() == pids
    roll.set_supervisor(0, None)
    assert roll.supervisors() == pids[1:]


def test_a_pid_travels_as_bytes() -> None:
    assert Pid.unpack(Pid(7, 1 << 40).pack()) == Pid(7, 1 << 40)
