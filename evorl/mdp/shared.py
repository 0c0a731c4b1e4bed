"""What all arenas of a process share that play the same game: its server, or its processes.

Worlds are plain configs, and several with the same keys may come and go. So what is shared belongs to the process,
under the settings that made it. It is closed with a world, or after that with the last arena that uses it, or with the
last who holds it for worlds to come (`World.hold`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)
K = TypeVar("K")


class Shared(Generic[K, T]):
    def __init__(self, made: Callable[[K], T]) -> None:
        self._made = made
        self._all: dict[K, T] = {}
        self._users: dict[K, int] = {}
        self._unwanted: set[K] = set()
        self._inherited: list[T] = []  # of a parent: a forked child must not touch them, not even to close them
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def __getitem__(self, settings: K) -> T:
        """Return what is shared under these settings; the first call makes it."""
        if settings not in self._all:
            self._all[settings] = self._made(settings)
        self._unwanted.discard(settings)
        return self._all[settings]

    def use(self, settings: K) -> Callable[[], None]:
        """Keep it open, now or once it is made, until the returned function is called."""
        self._users[settings] = self._users.get(settings, 0) + 1

        def end() -> None:
            if settings in self._users:
                self._users[settings] -= 1
                if settings in self._unwanted:
                    self.close(settings)

        return end

    def close(self, settings: K) -> None:
        """Close it, now or when its last user ends."""
        if self._users.get(settings, 0) > 0:
            self._unwanted.add(settings)
            return
        self._unwanted.discard(settings)
        self._users.pop(settings, None)
        if settings in self._all:
            self._all.pop(settings).close()

    def _leave_to_parent(self) -> None:
        self._inherited.extend(self._all.values())
        for known in (self._all, self._users, self._unwanted):
            known.clear()
