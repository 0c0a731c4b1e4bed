"""Forked processes that end together, watched by a thread: a process that ends, or stays stopped, ends the others."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial

from evorl.cluster.processes import out_of_memory
from evorl.cluster.processes.fork import die_with_parent, exit_reason, fork
from evorl.cluster.processes.pid import is_stopped

STOPPED_S = 30.0  # seconds that a process may be stopped by a signal
TICK_S = 1.0  # seconds between two looks at that
CAUSE_S = 10.0  # seconds to find out which process ended


class WatchedProcesses:
    """Forks processes and watches them until all have ended. When a process ends, it ends the others.

    It does so in a thread of its own, since the kernel ends a child (`die_with_parent`) with the thread that forked it.
    That thread has no OpenMP pool either, of which a child would have the lock and not the threads.
    """

    def __init__(
        self, name: str, works: Sequence[Callable[[], None]], keep: Sequence[int], lost: Callable[[], None]
    ) -> None:
        """``name``: of a process in messages, where its number follows, from 1 on. ``keep``: the descriptor that each
        process keeps open. ``lost``: called once all processes have ended."""
        self._name, self._works, self._keep, self._lost = name, works, keep, lost
        self._cause = ""
        self._known = threading.Event()  # all have ended
        self._forked = threading.Event()
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name=f"{self._name}s", daemon=True)
        self._thread.start()
        self._forked.wait()

    def find_cause(self) -> str:
        """Which process ended, and how; empty if none is found to have."""
        self._known.wait(CAUSE_S)
        return self._cause

    def close(self) -> None:
        """End all processes."""
        os.eventfd_write(self._end, 1)
        self._thread.join()
        os.close(self._end)

    def _run(self) -> None:
        pids: dict[int, tuple[int, int]] = {}  # of each: its number and process, by pidfd
        try:
            self._fork(pids)
            self._forked.set()
            self._cause = self._watch(pids)
        except OSError as error:
            self._cause = f"no process for a {self._name}: {error}"
        finally:
            self._forked.set()
            for fd, (_, pid) in pids.items():
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(fd)
        if self._cause:
            self._lost()
        self._known.set()

    def _fork(self, pids: dict[int, tuple[int, int]]) -> None:
        parent = os.getpid()

        def begin(work: Callable[[], None]) -> None:
            die_with_parent(parent)
            work()

        for rank, (work, keep) in enumerate(zip(self._works, self._keep, strict=True), 1):
            pid = fork(partial(begin, work), keep)
            pids[os.pidfd_open(pid)] = rank, pid

    def _watch(self, pids: dict[int, tuple[int, int]]) -> str:
        """Return which has ended, and how; an empty text when all shall."""
        poller, stopped = select.poll(), dict.fromkeys(pids, 0.0)
        starved = out_of_memory.kill_count()
        for fd in (self._end, *pids):
            poller.register(fd, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poller.poll(TICK_S * 1000)]
            if self._end in ready:
                return ""
            for fd in ready:
                rank, pid = pids.pop(fd)
                reason = exit_reason(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(fd)
                memory = " for want of memory" if out_of_memory.kill_count() > starved else ""
                return f"{self._name} {rank} (process {pid}) {reason}{memory}"
            for fd, (rank, pid) in pids.items():
                # by counted looks: time in which this process was stopped itself is not the other's
                stopped[fd] = stopped[fd] + TICK_S if is_stopped(pid) else 0.0
                if stopped[fd] > STOPPED_S:
                    return f"{self._name} {rank} (process {pid}) was stopped by a signal for {STOPPED_S:g} s"
