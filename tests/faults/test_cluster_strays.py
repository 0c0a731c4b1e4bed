"""Processes of `cluster=processes` that nobody may forget: stopped as they begin, or started by a world."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from cluster_victims import Victim

from evorl.cluster import child, nursery
from evorl.cluster.group import RemoteGroup
from evorl.cluster.processes import Processes

PATIENCE_S = 5.0


def nurses(group: RemoteGroup) -> list[int]:
    return [one.pid for one in group.crew.launcher._nurses]


def runs(pid: int) -> bool:
    """A process that has ended and that nobody has asked about yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def check_gone(*pids: int) -> None:
    ends = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if runs(pid)]:
        assert time.monotonic() < ends, left
        time.sleep(0.01)


# ------------------------------------------------------------------ stopped as they begin


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Callable[[], int]]:
    """Has the n-th process that is forked from now on stop while it still holds all files of its parent."""
    shared = memoryview(mmap.mmap(-1, 8)).cast("i")  # forks to come until then, and who it was
    close_files = child._close_files

    def stop_there(keep: int) -> None:
        shared[0] -= 1
        if shared[0] == 0:
            shared[1] = os.getpid()
            os.kill(os.getpid(), signal.SIGSTOP)
        close_files(keep)

    def arm(number: int) -> Callable[[], int]:
        shared[0] = number
        return lambda: shared[1]

    monkeypatch.setattr(child, "_close_files", stop_there)
    return arm


@pytest.mark.parametrize("number", [1, 2, 3], ids=["the driver's nurse", "the nurse's nurse", "the nurse's worker"])
@pytest.mark.parametrize("again", [False, True], ids=["", "and its nurse is killed"])
def test_who_is_stopped_right_after_its_fork_keeps_nobody_waiting(
    number: int, again: bool, forks: Callable[[int], Callable[[], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds its parent's sockets: so whether the parent lives cannot be seen from these."""
    monkeypatch.setattr(nursery, "ANSWER_S", 0.5)
    group = Processes(workers=1, deadline_s=1.0).spawn(partial(Victim, Path("/nowhere"), "exits", "never"), 2)
    assert isinstance(group, RemoteGroup)
    try:
        stopped = forks(number)
        for pid in nurses(group):
            os.kill(pid, signal.SIGKILL)
        pending = group.any("ask", 3)
        while not stopped():
            group.poll(0.001)
        if again:
            for pid in nurses(group):
                os.kill(pid, signal.SIGKILL)
        assert pending.result() == 9
        assert group.all("add", 1) == [1, 2]
        check_gone(stopped())
        assert len(nurses(group)) == 2
    finally:
        group.close()
