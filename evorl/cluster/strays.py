"""Who is left of a group's processes when some of them were killed.

A group's driver and nurses share a *roll*: the process ids of its nurses and workers. Each worker leads a process
group, and whatever its world starts inherits that, or at least a word in its environment. So whoever outlives the
others can end all of them, also those that were stopped before they could see to their own end.
"""

from __future__ import annotations

import mmap
import os
import signal
from contextlib import suppress
from pathlib import Path

MARK = "EVORL_WORKER"
NURSES = 2
ROUNDS = 10  # of looking for strays: who is found may have just started another


class Roll:
    """The nurses and workers of a group, in memory that its processes share. A place that nobody has holds 0."""

    def __init__(self, workers: int) -> None:
        self._pids = memoryview(mmap.mmap(-1, 4 * (NURSES + workers))).cast("i")

    def nurse(self, place: int, pid: int) -> None:
        self._pids[place] = pid

    def worker(self, place: int, pid: int) -> None:
        self._pids[NURSES + place] = pid

    def nurses(self) -> list[int]:
        return [pid for pid in self._pids[:NURSES] if pid]

    def end_workers(self) -> None:
        """And strike them off."""
        for place in range(NURSES, len(self._pids)):
            if pid := self._pids[place]:
                end(pid)
                self._pids[place] = 0


def end(pid: int) -> None:
    """Kill a process, and those of the group that it leads or led."""
    for kill in (os.kill, os.killpg):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def mark(name: str) -> None:
    """Whatever this process starts from now on is of this name."""
    os.environ[MARK] = name


def end_marked(prefix: str) -> None:
    """Kill the programs whose name, as `mark` gave it, begins with ``prefix``, also those that left their group."""
    words = f"{MARK}={prefix}".encode()
    for _ in range(ROUNDS):
        if not sum(_end_if(int(pid), words) for pid in os.listdir("/proc") if pid.isdigit()):
            return


def _end_if(pid: int, words: bytes) -> bool:
    """Whether the process carries these words; then it is killed."""
    with suppress(OSError):  # it has ended, or is somebody else's
        if _carries(pid, words):
            handle = os.pidfd_open(pid)
            try:
                if known := _carries(pid, words):  # the number is not another's by now
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                return known
            finally:
                os.close(handle)
    return False


def _carries(pid: int, words: bytes) -> bool:
    return any(word.startswith(words) for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
