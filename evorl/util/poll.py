"""Waiting for files of any number: `select.select` takes none from 1024 on, and hundreds of workers make more."""

from __future__ import annotations

import select
from collections.abc import Iterable
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def readable(files: Iterable[int | HasFileno], timeout_s: float | None = None) -> set[int]:
    """The numbers of those that there is something to read from, or that have ended; none where the time is over."""
    poll = select.poll()
    for one in files:
        poll.register(one, select.POLLIN)
    return {number for number, _ in poll.poll(None if timeout_s is None else 1000 * timeout_s)}
