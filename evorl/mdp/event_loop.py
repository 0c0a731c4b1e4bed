"""An asyncio event loop that runs until a target is reached and no task can run without waiting.

An asyncio loop lets its selector block exactly when no callback is ready. So a custom selector detects that state,
without polling, extra passes, or private fields of asyncio.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from evorl.util.stop import LOOK_S, check_stop, stopping

MAX_IDLE_PASSES = 64
"""Passes without progress after which a busy loop (some task polls) is paused."""
CANCEL_TIMEOUT_S = 5.0
STALL_S = 30.0
"""Seconds without events or timers after which ``stalled`` is called."""
REST_S = 0.1
"""Seconds between two runs of a loop that its clock counts at most."""


class PausingLoop:
    """An event loop that stands still between calls of `run`, and with it its clock.

    ``stalled`` is called once per period without events. Its argument: whether something outside the loop (a thread,
    a file descriptor) could still wake it. `run` passes on what it raises.
    """

    def __init__(self, stalled: Callable[[bool], None]) -> None:
        self._may_stop = False  # within `run`, and not while games are being left
        self.loop = _Loop(_Selector(self._pause, stalled, self._look))
        self._score: Callable[[], int] = int
        self._target = 1
        self._last = self._passes = 0
        self._pausing: set[asyncio.Future[None]] = set()

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the run is to stop."""
        if not seconds:
            await asyncio.sleep(0)
            return
        over: asyncio.Future[None] = self.loop.create_future()
        self._pausing.add(over)
        try:
            await asyncio.wait([over], timeout=seconds)
        finally:
            self._pausing.discard(over)

    def run(self, score: Callable[[], int], target: int = 1) -> None:
        """Run until ``score() >= target`` and no other task can run (except tasks that poll).

        Raises `evorl.cluster.core.Stopped` where that is allowed; then the loop can only be closed.
        """
        self._score, self._target = score, target
        self._last = self._passes = 0
        self._may_stop = True
        self.loop.wake()
        try:
            self.loop.run_forever()
        finally:
            self._may_stop = False
            self.loop.rest()

    def _look(self) -> bool:
        """Return whether pauses end now, since the run is to stop."""
        if not self._may_stop:
            return False
        check_stop()
        ended = [over for over in self._pausing if not over.done()] if stopping() else []
        for over in ended:
            over.set_result(None)
        return bool(ended)

    def cancel(self, tasks: Iterable[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        """Cancel tasks and run until they have ended; return those that have not within the timeout."""
        left = {task for task in tasks if not task.done()}
        for task in left:
            task.cancel()
        self._score = int  # always 0: only the end of these tasks stops the loop
        return self.loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_TIMEOUT_S))[1] if left else left

    def close(self) -> None:
        self._score = int
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def _pause(self, busy: bool) -> bool:
        """Return whether to leave the loop now; called at every pass."""
        score = self._score()
        self._passes = self._passes + 1 if score == self._last else 0
        self._last = score
        if score < self._target or (busy and self._passes <= MAX_IDLE_PASSES):
            return False
        self.loop.stop()
        return True


async def run_all(sides: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines until all have returned or one raises; cancel the rest and raise its error."""
    tasks = [asyncio.ensure_future(side) for side in sides]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.cancelled():
                raise RuntimeError("the battle cancelled one of its sides")
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose clock does not count long rests: nothing can be heard in them, so no deadline may pass in them."""

    _away = 0.0  # seconds of rests that are not counted
    _rested: float | None = None  # since when it rests

    def time(self) -> float:
        return super().time() - self._away

    def rest(self) -> None:
        self._rested = self.time()

    def wake(self) -> None:
        if self._rested is not None:
            self._away += max(self.time() - self._rested - REST_S, 0.0)
            self._rested = None


class _Selector(selectors.DefaultSelector):
    def __init__(
        self, pause: Callable[[bool], bool], stalled: Callable[[bool], None], look: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._pause, self._stalled, self._look = pause, stalled, look
        self._silent = False  # and `stalled` was called

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        busy = bool(events) or (timeout is not None and timeout <= 0)
        if self._pause(busy) or busy:
            self._silent = False
            return events
        events = self._wait(STALL_S if timeout is None else timeout)
        silent = timeout is None and not events
        if silent and not self._silent:
            self._stalled(self._wakeable())
        self._silent = silent
        return events

    def _wait(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events, and look every `LOOK_S` whether the run is to stop."""
        ends = time.monotonic() + timeout
        while True:
            if self._look():
                return []
            left = ends - time.monotonic()
            if (events := super().select(max(min(left, LOOK_S), 0))) or left <= LOOK_S:
                return events

    def _wakeable(self) -> bool:
        """Return whether a file descriptor other than the loop's own, or another thread, could wake the loop."""
        return len(self.get_map()) > 1 or threading.active_count() > 1
