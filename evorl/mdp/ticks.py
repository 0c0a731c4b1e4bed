"""Background tasks of a battle: its clock, rule players, and anything else beside the controlled sides."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self


class Ticks:
    """Background tasks, and the futures on which sides wait.

    Leaving the context cancels every task. If a task raises, or the last one returns, every pending future fails with
    that cause, so a battle can fail but never hang:

        async with Ticks() as ticks:
            ticks.start(clock())            # resolves the future some time later
            moved = await ticks.future()
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._waits: list[asyncio.Future[Any]] = []
        self._error: BaseException | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if error is None and self._error is not None and not isinstance(self._error, Idle):
            raise self._error

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it returns or the battle is left."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def future(self) -> asyncio.Future[Any]:
        """Return a future that the background tasks resolve. Raises the error of a failed task."""
        if self._error is not None:
            raise self._error
        future = asyncio.get_running_loop().create_future()
        self._waits = [each for each in self._waits if not each.done()]  # few: at most one per side
        self._waits.append(future)
        return future

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None and not self._tasks:
            error = Idle("the last background task of the battle ended while a side still waited")
        if error is not None and self._error is None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._error = error
        for future in self._waits:
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks the error as retrieved, in case no side awaits it


class Idle(RuntimeError):
    """No task is left that could resolve a pending future."""
