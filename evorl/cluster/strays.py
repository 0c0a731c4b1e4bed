"""Who is left of a group's processes when some of them were killed.

A group's driver and nurses share a *roll*: which processes its nurses and workers are. Each worker leads a process
group, and whatever its world starts inherits that, or at least a word in its environment. So whoever outlives the
others can end all of them, also those that were stopped before they could see to their own end.
"""

from __future__ import annotations

import mmap
import os
import signal
from contextlib import suppress
from pathlib import Path

from evorl.cluster.pid import WORDS, Pid

MARK = "EVORL_WORKER"
NURSES = 2
ROUNDS = 10  # of looking for strays: who is found may have just started another


class Roll:
    """The nurses and workers of a group, in memory that its processes share. A place that nobody has holds 0."""

    def __init__(self, workers: int) -> None:
        self._words = memoryview(mmap.mmap(-1, WORDS.size * (NURSES + workers))).cast("q")

    def nurse(self, place: int, pid: Pid | None) -> None:
        self._enter(place, pid)

    def worker(self, place: int, pid: Pid) -> None:
        self._enter(NURSES + place, pid)

    def strike(self, place: int, pid: Pid) -> None:
        """This worker is gone; its place may be its successor's already."""
        if pid in self._found(range(NURSES + place, NURSES + place + 1)).values():
            self._enter(NURSES + place, None)

    def _enter(self, place: int, pid: Pid | None) -> None:
        self._words[2 * place] = 0  # who reads it meanwhile finds nobody, and not half of two
        if pid is not None:
            self._words[2 * place + 1] = pid.began
            self._words[2 * place] = pid.number

    def _found(self, places: range) -> dict[int, Pid]:
        pids = {place: Pid(*self._words[2 * place : 2 * place + 2]) for place in places}
        return {place: pid for place, pid in pids.items() if pid.number}

    def nurses(self) -> list[Pid]:
        return [*self._found(range(NURSES)).values()]

    def end_workers(self) -> None:
        """And strike them off."""
        for place, pid in self._found(range(NURSES, len(self._words) // 2)).items():
            end(pid)
            self._enter(place, None)


def end(pid: Pid) -> None:
    """Kill a process, and those of the group that it leads or led.

    The group has the process's number, which the kernel gives to nobody as long as anyone is in the group.
    """
    pid.kill()
    if not pid.replaced():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid.number, signal.SIGKILL)


def mark(name: str) -> None:
    """Whatever this process starts from now on is of this name."""
    os.environ[MARK] = name


def end_marked(*prefixes: str) -> None:
    """Kill the programs whose name, as `mark` gave it, begins so or so, also those that left their group.

    Looks at every process of the machine, some 20 microseconds each: not for the way of what somebody waits for.
    """
    words = tuple(f"{MARK}={prefix}".encode() for prefix in prefixes)
    for _ in range(ROUNDS):
        if not sum(_end_if(int(pid), words) for pid in os.listdir("/proc") if pid.isdigit()):
            return


def _end_if(pid: int, words: tuple[bytes, ...]) -> bool:
    """Whether the process carries one of these words; then it is killed."""
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


def _carries(pid: int, words: tuple[bytes, ...]) -> bool:
    return any(word.startswith(words) for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
