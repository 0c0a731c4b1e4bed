"""Detection of workers that have ended or hang, from their launcher and from deadlines.

`evorl.cluster.processes.supervisor` sees the end of a process on its machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from evorl.cluster.workers.handle import WorkerHandle
from evorl.cluster.workers.launcher import Exit, Launcher

TICK_S = 0.2  # longest wait of the driver before it checks deadlines
GRACE_S = 0.05  # for messages being delivered, before an overdue worker is killed
KILL_TIMEOUT_S = 5.0  # after which a killed process without an `Exit` counts as ended


class HeartbeatMonitor:
    """Watches the processes of some workers."""

    def __init__(self, launcher: Launcher, handles: Sequence[WorkerHandle], deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self._launcher, self._handles, self._pauses = launcher, handles, DriverPauses()

    def exits(self) -> Iterator[Exit]:
        """Yield the processes that have ended since the last call, with the reason."""
        for death in self._launcher.exits():
            if death.life == self._handles[death.worker].process.life:
                yield self._with_reason(death)

    def kill_overdue(self, receive: Callable[[float], None]) -> Iterator[Exit]:
        """Kill workers that are past their deadline; yield those that have ended, or that do not end although killed.

        ``receive`` handles messages for so many seconds: a heartbeat may be in delivery.
        """
        if any(self._is_overdue(handle) for handle in self._handles):
            ends = time.monotonic() + GRACE_S
            while (left := ends - time.monotonic()) > 0:
                receive(left)
        overdue = [*filter(self._is_overdue, self._handles)]  # now: to kill takes time, in which nothing is received
        for handle in self._handles:
            if handle in overdue:
                handle.process.signs.overdue = True
                self._launcher.kill(handle.number, handle.process.life)
                yield from self.exits()  # `kill` may have consumed the launcher's wake-up
            elif self._seconds_overdue(handle) > KILL_TIMEOUT_S:
                yield self._with_reason(Exit(handle.number, handle.process.life, "", external=False))

    def is_due(self) -> bool:
        """Return whether deadlines have to be checked again: not right after the last check."""
        return self._pauses.exclude(self._handles)

    def _is_overdue(self, handle: WorkerHandle) -> bool:
        return not handle.process.signs.overdue and self._seconds_overdue(handle) > 0

    def _seconds_overdue(self, handle: WorkerHandle) -> float:
        """Return the seconds since a worker's deadline; 0 or less if it is not past it."""
        return handle.process.signs.silence(working=bool(handle.calls.in_flight) or not handle.ready) - self.deadline_s

    def _with_reason(self, death: Exit) -> Exit:
        if not self._handles[death.worker].process.signs.overdue:
            return death
        return death._replace(why=f"gave no sign for {self.deadline_s:g} s", external=death.stopped)


class DriverPauses:
    """Pauses of the driver, which do not count towards workers' deadlines: it can neither receive nor answer then."""

    def __init__(self) -> None:
        self._last_check, self._last_cpu_time = time.monotonic(), time.process_time()

    def exclude(self, handles: Iterable[WorkerHandle]) -> bool:
        """Exclude this process's pause since the last check from all deadlines; return False right after a check.

        For connected workers only the time counts in which this process did not run at all (stopped or suspended).
        For others its time of computation counts as well: their connection and hello need the driver to proceed.
        """
        checked, cpu_time = time.monotonic(), time.process_time()
        if checked - self._last_check < TICK_S / 2:
            return False
        away = max(0.0, checked - self._last_check - 2 * TICK_S)
        stopped = max(0.0, away - (cpu_time - self._last_cpu_time))
        self._last_check, self._last_cpu_time = checked, cpu_time
        for handle in handles:
            handle.process.signs.postpone(stopped if handle.connected else away)
        return True
