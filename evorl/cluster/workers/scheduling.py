"""Whose turn it is to take a call, found in a time that does not grow with the number of workers."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Busy(Protocol):
    """Who takes calls."""

    @property
    def number(self) -> int: ...

    @property
    def under_way(self) -> int:
        """Calls that it has not answered."""
        ...

    @property
    def room(self) -> int:
        """Calls that it may have under way; none while it cannot take any."""
        ...


T = TypeVar("T", bound=Busy)


class Turns(Generic[T]):
    """Workers that have room, by how much they have to do."""

    def __init__(self, most: int) -> None:
        """``most``: room that nobody has more of."""
        self._by: list[dict[int, T]] = [{} for _ in range(most)]
        self._at: dict[int, int] = {}

    def note(self, one: T) -> None:
        """To be told whenever what somebody has under way, or has room for, has changed."""
        at = self._at.pop(one.number, None)
        if at is not None:
            del self._by[at][one.number]
        if one.under_way < one.room:
            self._at[one.number] = one.under_way
            self._by[one.under_way][one.number] = one

    def idle(self) -> bool:
        """Whether somebody has nothing to do."""
        return bool(self._by[0])

    def least(self) -> T | None:
        """Who has least to do, the one that has been waiting longest; None where nobody has room."""
        return next((next(iter(some.values())) for some in self._by if some), None)
