"""Which workers have ended, and which must: what their launcher tells of them, and what their deadlines do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from evorl.cluster.workers.handle import WorkerHandle
from evorl.cluster.workers.launcher import Exit, Launcher

TICK_S = 0.2  # the longest the driver waits before it looks at deadlines
GRACE_S = 0.05  # for signs that are on their way, before a worker is killed for giving none
KILL_TIMEOUT_S = 5.0  # that a killed process gets until it is given up


class HeartbeatMonitor:
    """Watches over the processes that hold some handles."""

    def __init__(self, launcher: Launcher, handles: Sequence[WorkerHandle], deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self._launcher, self._handles, self._pauses = launcher, handles, DriverPauses()

    def exits(self) -> Iterator[Exit]:
        """The processes that ended since the last time, and why."""
        for gone in self._launcher.exits():
            if gone.life == self._handles[gone.worker].life:
                yield self._with_reason(gone)

    def kill_overdue(self, receive: Callable[[float], None]) -> Iterator[Exit]:
        """Kill who is past its deadline: those that so ended, and those that do not even do that.

        ``receive`` takes what comes within some seconds: a sign may be on its way.
        """
        if any(self._is_overdue(handle) for handle in self._handles):
            ends = time.monotonic() + GRACE_S
            while (left := ends - time.monotonic()) > 0:
                receive(left)
        for handle in self._handles:
            if self._is_overdue(handle):
                handle.overdue = True
                self._launcher.kill(handle.number, handle.life)
                yield from self.exits()  # what the launcher waited for may be all the news there was
            elif handle.seconds_overdue(self.deadline_s) > KILL_TIMEOUT_S:
                yield self._with_reason(Exit(handle.number, handle.life, "", blameless=False))

    def is_due(self) -> bool:
        """Whether it is time to ask who is `late` again."""
        return self._pauses.exclude(self._handles)

    def _is_overdue(self, handle: WorkerHandle) -> bool:
        return not handle.overdue and handle.seconds_overdue(self.deadline_s) > 0

    def _with_reason(self, gone: Exit) -> Exit:
        if not self._handles[gone.worker].overdue:
            return gone
        return gone._replace(why=f"gave no sign for {self.deadline_s:g} s", blameless=gone.stopped)


class DriverPauses:
    """When the driver was not there: workers are not blamed for signs that it could not receive, or did not answer."""

    def __init__(self) -> None:
        self._last_check, self._last_cpu_time = time.monotonic(), time.process_time()

    def exclude(self, handles: Iterable[WorkerHandle]) -> bool:
        """Count time in which this process was away for nobody; False where the last look was just now.

        Of workers that have come this is the time in which it stood still, neither here nor at work. For others it is
        that of its work, too: their connection and their greeting need it to go on.
        """
        now, worked = time.monotonic(), time.process_time()
        if now - self._last_check < TICK_S / 2:
            return False
        away = max(0.0, now - self._last_check - 2 * TICK_S)
        stood = max(0.0, away - (worked - self._last_cpu_time))
        self._last_check, self._last_cpu_time = now, worked
        for handle in handles:
            handle.last_sign += stood if handle.host else away
        return True
