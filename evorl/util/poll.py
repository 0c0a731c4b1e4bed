"""Wait for readable file descriptors of any number; `select.select` refuses numbers from 1024 on."""

from __future__ import annotations

import select
from collections.abc import Iterable
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def readable(files: Iterable[int | HasFileno], timeout_s: float | None = None) -> set[int]:
    """Return the descriptors that have data or have ended; an empty set after ``timeout_s``."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {number for number, _ in poll.poll(None if timeout_s is None else 1000 * timeout_s)}
