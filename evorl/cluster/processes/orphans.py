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
ROUNDS = 10  # of searching: an orphan that is found may have just started another
BEGINS_S = 0.01  # seconds between two rounds, where a process is in exec
KERNEL = 0x00200000  # PF_KTHREAD of Linux's sched.h: a thread of the kernel, which has no environment


class ProcessTable:
    """The supervisors and workers of a group, in shared memory. A free slot holds 0."""

    def __init__(self, workers: int) -> None:
        self._words = memoryview(mmap.mmap(-1, WORDS.size * (SUPERVISORS + workers))).cast("q")

    def set_supervisor(self, place: int, pid: Pid | None) -> None:
        self._enter(place, pid)

    def worker(self, place: int, pid: Pid) -> None:
        self._enter(SUPERVISORS + place, pid)

    def remove(self, place: int, pid: Pid) -> None:
        """Remove a worker that ended; its slot may already belong to its successor."""
        if pid in self._pids(range(SUPERVISORS + place, SUPERVISORS + place + 1)).values():
            self._enter(SUPERVISORS + place, None)

    def _enter(self, place: int, pid: Pid | None) -> None:
        self._words[2 * place] = 0  # first: a concurrent reader finds a free slot, not a mixture of two
        if pid is not None:
            self._words[2 * place + 1] = pid.began
            self._words[2 * place] = pid.number

    def _pids(self, places: range) -> dict[int, Pid]:
        pids = {place: Pid(*self._words[2 * place : 2 * place + 2]) for place in places}
        return {place: pid for place, pid in pids.items() if pid.number}

    def supervisors(self) -> list[Pid]:
        return [*self._pids(range(SUPERVISORS)).values()]

    def end_workers(self) -> None:
        """Kill all workers and remove them from the table."""
        for place, pid in self._pids(range(SUPERVISORS, len(self._words) // 2)).items():
            kill_group(pid)
            self._enter(place, None)


def kill_group(pid: Pid) -> None:
    """Kill a process, and those of the group that it leads or led.

    The group has the process's number. The kernel does not reuse it as long as the group has members.
    """
    pid.kill()
    if not pid.replaced():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid.number, signal.SIGKILL)


def tag_children(name: str) -> None:
    """Tag all programs that this process starts from now on with a name in their environment."""
    os.environ[MARK] = name


def kill_tagged(*prefixes: str) -> None:
    """Kill programs whose tag (`tag_children`) starts with one of these words, also those that left their group.

    It reads every process of the machine, about 20 microseconds each, so it is not for code that a call waits for.
    """
    words = tuple(f"{MARK}={prefix}".encode() for prefix in prefixes)
    for _ in range(ROUNDS):
        killed = [_kill_if_tagged(int(pid), words) for pid in os.listdir("/proc") if pid.isdigit()]
        if not any(killed):
            if None not in killed:
                return
            time.sleep(BEGINS_S)


def _kill_if_tagged(pid: int, words: tuple[bytes, ...]) -> bool | None:
    """Kill the process if its tag starts with one of these words; return whether it did, None if not readable yet."""
    with suppress(OSError):  # it has ended, or belongs to another user
        if (carries := _has_tag(pid, words)) is None:
            return None
        if carries:
            handle = os.pidfd_open(pid)
            try:
                # again, since the pid may have been reused before the pidfd was opened
                if known := _has_tag(pid, words):
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
    """Whether a process without an environment may be inside exec, which drops the old one before it sets the new one.

    On a busy machine this takes milliseconds.
    """
    state, *_, flags = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()[:7]
    return state not in b"ZX" and not int(flags) & KERNEL and os.stat(f"/proc/{pid}").st_uid == os.getuid()
