"""Finds and kills the orphans of a group: processes that are left when others were killed.

The driver and the supervisors share a process table of all supervisors and workers. Each worker leads a process group.
Programs that a world starts inherit that group, or at least a tag in their environment. So any survivor can kill all
the others, also those that were stopped before they could exit.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from evorl.cluster.processes.pid import WORDS, Pid

MARK = "EVORL_WORKER"
SUPERVISORS = 2
ROUNDS = 10  # of looking for strays: who is found may have just started another
BEGINS_S = 0.01  # between two, where somebody is about to become another program
KERNEL = 0x00200000  # PF_KTHREAD of Linux's sched.h: a thread of the kernel, which has no environment


class ProcessTable:
    """The supervisors and workers of a group, in memory that its processes share. A place that nobody has holds 0."""

    def __init__(self, workers: int) -> None:
        self._words = memoryview(mmap.mmap(-1, WORDS.size * (SUPERVISORS + workers))).cast("q")

    def set_supervisor(self, place: int, pid: Pid | None) -> None:
        self._enter(place, pid)

    def worker(self, place: int, pid: Pid) -> None:
        self._enter(SUPERVISORS + place, pid)

    def remove(self, place: int, pid: Pid) -> None:
        """This worker is gone; its place may be its successor's already."""
        if pid in self._found(range(SUPERVISORS + place, SUPERVISORS + place + 1)).values():
            self._enter(SUPERVISORS + place, None)

    def _enter(self, place: int, pid: Pid | None) -> None:
        self._words[2 * place] = 0  # who reads it meanwhile finds nobody, and not half of two
        if pid is not None:
            self._words[2 * place + 1] = pid.began
            self._words[2 * place] = pid.number

    def _found(self, places: range) -> dict[int, Pid]:
        pids = {place: Pid(*self._words[2 * place : 2 * place + 2]) for place in places}
        return {place: pid for place, pid in pids.items() if pid.number}

    def supervisors(self) -> list[Pid]:
        return [*self._found(range(SUPERVISORS)).values()]

    def end_workers(self) -> None:
        """And strike them off."""
        for place, pid in self._found(range(SUPERVISORS, len(self._words) // 2)).items():
            kill_group(pid)
            self._enter(place, None)


def kill_group(pid: Pid) -> None:
    """Kill a process, and those of the group that it leads or led.

    The group has the process's number, which the kernel gives to nobody as long as anyone is in the group.
    """
    pid.kill()
    if not pid.replaced():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid.number, signal.SIGKILL)


def tag_children(name: str) -> None:
    """Whatever this process starts from now on is of this name."""
    os.environ[MARK] = name


def kill_tagged(*prefixes: str) -> None:
    """Kill the programs whose name, as `tag_children` gave it, begins so or so, also those that left their group.

    Looks at every process of the machine, some 20 microseconds each: not for the way of what somebody waits for.
    """
    words = tuple(f"{MARK}={prefix}".encode() for prefix in prefixes)
    for _ in range(ROUNDS):
        found = [_kill_if_tagged(int(pid), words) for pid in os.listdir("/proc") if pid.isdigit()]
        if not any(found):
            if None not in found:
                return
            time.sleep(BEGINS_S)


def _kill_if_tagged(pid: int, words: tuple[bytes, ...]) -> bool | None:
    """Whether the process carries one of these words; then it is killed. None where that cannot be seen yet."""
    with suppress(OSError):  # it has ended, or is somebody else's
        if (carries := _has_tag(pid, words)) is None:
            return None
        if carries:
            handle = os.pidfd_open(pid)
            try:
                if known := _has_tag(pid, words):  # the number is not another's by now
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                return known
            finally:
                os.close(handle)
    return False


def _has_tag(pid: int, words: tuple[bytes, ...]) -> bool | None:
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    if not environment and _is_in_exec(pid):
        return None
    return any(word.startswith(words) for word in environment.split(b"\0"))


def _is_in_exec(pid: int) -> bool:
    """Whether one without an environment may be between two programs: exec takes the old one before it gives the new.

    On a busy machine that takes milliseconds, in which whoever started it may know already that it runs.
    """
    state, *_, flags = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()[:7]
    return state not in b"ZX" and not int(flags) & KERNEL and os.stat(f"/proc/{pid}").st_uid == os.getuid()
