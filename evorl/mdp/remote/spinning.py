"""A selector that spins before it sleeps, where events have come at once before.

A game on the same machine often answers within microseconds. Then falling asleep and being woken takes more than a
quarter of a round trip, since a processor without work is slow to come back. A slower game is waited for asleep.
"""

from __future__ import annotations

import os
import selectors
import time

SPIN_S = 300e-6
"""Seconds of spinning at most. An event that takes longer ends it for the waits after it, until one comes sooner."""


class SpinningSelector(selectors.DefaultSelector):
    _soon = True  # the last event came within `SPIN_S`

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if (events := super().select(0)) or timeout == 0:
            return events
        began = time.perf_counter()
        ends = began + (SPIN_S if timeout is None else min(timeout, SPIN_S))
        while self._soon and time.perf_counter() < ends:
            os.sched_yield()  # the game may need this processor to answer
            if events := super().select(0):
                return events
        events = super().select(timeout)
        self._soon = time.perf_counter() - began < SPIN_S
        return events
