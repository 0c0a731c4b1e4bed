"""Whose turn it is to take a call, found in a time that does not grow with the number of workers."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Schedulable(Protocol):
    """Who takes calls."""

    @property
    def number(self) -> int: ...

    @property
    def assigned(self) -> int:
        """Calls that it has not answered."""
        ...

    @property
    def capacity(self) -> int:
        """Calls that it may have under way; none while it cannot take any."""
        ...


T = TypeVar("T", bound=Schedulable)


class Scheduler(Generic[T]):
    """Workers that have capacity, by how much they have to do."""

    def __init__(self, most: int) -> None:
        """``most``: capacity that nobody has more of."""
        self._by_load: list[dict[int, T]] = [{} for _ in range(most)]
        self._load_of: dict[int, int] = {}

    def update(self, one: T) -> None:
        """To be told whenever what somebody has under way, or has capacity for, has changed."""
        at = self._load_of.pop(one.number, None)
        if at is not None:
            del self._by_load[at][one.number]
        if one.assigned < one.capacity:
            self._load_of[one.number] = one.assigned
            self._by_load[one.assigned][one.number] = one

    def has_idle(self) -> bool:
        """Whether somebody has nothing to do."""
        return bool(self._by_load[0])

    def least_loaded(self) -> T | None:
        """Who has least to do, the one that has been waiting longest; None where nobody has capacity."""
        return next((next(iter(some.values())) for some in self._by_load if some), None)
