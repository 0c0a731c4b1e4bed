"""Types that packages share: states, and numbers with bounds that `evorl.util.typed` checks through msgspec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta

if TYPE_CHECKING:
    from numpy.typing import NDArray

Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
AtLeastOne = Annotated[float, Meta(ge=1)]
Shrinking = Annotated[float, Meta(gt=0, le=1)]  # a factor
Averaging = Annotated[float, Meta(ge=0, lt=1)]  # the share of the past in a moving average
Count = Annotated[int, Meta(ge=1)]
Threads = Annotated[int, Meta(ge=1, le=1024)]  # more than a system allows would end the process
Natural = Annotated[int, Meta(ge=0)]
Steps = Annotated[int, Meta(ge=0, le=1 << 53)]  # floats represent all integers up to this


class AppendedRows(NamedTuple):
    """Rows ``first`` to ``end`` - 1 of arrays that only grow at their end and lose rows at their start.

    A row never changes once it was appended, so a checkpoint writes only the rows that the one before lacks. A loaded
    state holds `whole` in its place.
    """

    first: int
    end: int
    read: Callable[[int, int], dict[str, NDArray[Any]]]
    """Returns copies of the rows from one number up to another."""

    def whole(self) -> dict[str, Any]:
        """Return the number of the first row, and all rows by name."""
        return {"first": self.first, "rows": self.read(self.first, self.end)}

    def pieces(self, size: int) -> Iterator[AppendedRows]:
        """Yield the rows in pieces of ``size`` bytes or little more, and a rest."""
        step = self.filling(size)
        for low in range(self.first, self.end, step):
            yield self._replace(first=low, end=min(low + step, self.end))

    def filling(self, size: int) -> int:
        """How many of these rows fill ``size`` bytes, at least 1."""
        if self.first == self.end:
            return 1
        each = sum(x.nbytes for x in self.read(self.first, self.first + 1).values())
        return max(-(-size // max(each, 1)), 1)


def with_whole_rows(state: Any) -> Any:
    """Return a state with `AppendedRows.whole` in place of appended rows, as a message needs it."""
    if isinstance(state, AppendedRows):
        return state.whole()
    if isinstance(state, dict):
        return {name: with_whole_rows(part) for name, part in state.items()}
    return state


StateDict = dict[str, Any]
"""Nested dictionaries (string keys) of NumPy arrays, torch tensors, plain JSON values and lists of these."""
