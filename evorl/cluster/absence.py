"""When the driver was not there: workers are not blamed for signs that it could not hear, or did not answer."""

from __future__ import annotations

import time
from collections.abc import Iterable

from evorl.cluster.seats import Seat

TICK_S = 0.2  # the longest the driver waits before it looks at deadlines


class Absence:
    """Measures from one look at the workers to the next."""

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
