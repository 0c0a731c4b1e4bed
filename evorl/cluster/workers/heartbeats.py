"""Which workers have ended, and which must: what their launcher tells of them, and what their deadlines do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from evorl.cluster.workers.handle import Seat
from evorl.cluster.workers.launcher import Exit, Launcher

TICK_S = 0.2  # the longest the driver waits before it looks at deadlines
GRACE_S = 0.05  # for signs that are on their way, before a worker is killed for giving none
DYING_S = 5.0  # that a killed process gets until it is given up


class Vigil:
    """Watches over the processes that hold some seats."""

    def __init__(self, launcher: Launcher, seats: Sequence[Seat], deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self._launcher, self._seats, self._absence = launcher, seats, Absence()

    def ended(self) -> Iterator[Exit]:
        """The processes that ended since the last time, and why."""
        for gone in self._launcher.exits():
            if gone.life == self._seats[gone.worker].life:
                yield self._explained(gone)

    def late(self, hear: Callable[[float], None]) -> Iterator[Exit]:
        """Kill who is past its deadline: those that so ended, and those that do not even do that.

        ``hear`` takes what comes within some seconds: a sign may be on its way.
        """
        if any(self._is_late(seat) for seat in self._seats):
            ends = time.monotonic() + GRACE_S
            while (left := ends - time.monotonic()) > 0:
                hear(left)
        for seat in self._seats:
            if self._is_late(seat):
                seat.overdue = True
                self._launcher.kill(seat.number, seat.life)
                yield from self.ended()  # what the launcher waited for may be all the news there was
            elif seat.late(self.deadline_s) > DYING_S:
                yield self._explained(Exit(seat.number, seat.life, "", blameless=False))

    def is_due(self) -> bool:
        """Whether it is time to ask who is `late` again."""
        return self._absence.excuse(self._seats)

    def _is_late(self, seat: Seat) -> bool:
        return not seat.overdue and seat.late(self.deadline_s) > 0

    def _explained(self, gone: Exit) -> Exit:
        if not self._seats[gone.worker].overdue:
            return gone
        return gone._replace(why=f"gave no sign for {self.deadline_s:g} s", blameless=gone.stopped)


class Absence:
    """When the driver was not there: workers are not blamed for signs that it could not hear, or did not answer."""

    def __init__(self) -> None:
        self._looked, self._worked = time.monotonic(), time.process_time()

    def excuse(self, seats: Iterable[Seat]) -> bool:
        """Count time in which this process was away for nobody; False where the last look was just now.

        Of workers that have come this is the time in which it stood still, neither here nor at work. For others it is
        that of its work, too: their connection and their greeting need it to go on.
        """
        now, worked = time.monotonic(), time.process_time()
        if now - self._looked < TICK_S / 2:
            return False
        away = max(0.0, now - self._looked - 2 * TICK_S)
        stood = max(0.0, away - (worked - self._worked))
        self._looked, self._worked = now, worked
        for seat in seats:
            seat.since += stood if seat.host else away
        return True
