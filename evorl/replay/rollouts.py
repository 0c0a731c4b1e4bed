"""Storage of whole rollouts in preallocated arrays.

A rollout is T decisions of one slot: its T+1 states, what was decided and what followed. Each column keeps its own
dtype, so observations in bytes stay in bytes; they may be compressed. Which rollout lies in which place is up to a part
of a replay (`evorl.replay.part`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorl.replay.packed import Packed

Array = NDArray[Any]
Numbers = NDArray[np.int64]
Columns = Mapping[str, Array]
"""Rollouts side by side: arrays [N, ...] by name."""


class Rollouts:
    """``capacity`` places for rollouts."""

    def __init__(self, like: Columns, capacity: int) -> None:
        """``like``: rollouts with the names, shapes and dtypes of all that will be stored."""
        self.capacity = capacity
        self.arrays: dict[str, Array | Packed] = {
            name: np.zeros((capacity, *x.shape[1:]), x.dtype) for name, x in like.items()
        }

    def compress(self) -> None:
        """Keep the observations in bytes compressed from now on; only before any rollout is stored."""
        for name, x in self.arrays.items():
            if name.startswith("input") and x.dtype == np.uint8:
                self.arrays[name] = Packed(x.shape, x.dtype)

    def put(self, places: Numbers, rollouts: Columns) -> None:
        """Store rollouts [N] in these places [N], the columns that there are; of a place named twice the last stays."""
        for name, x in self.arrays.items():
            x[places] = rollouts[name]

    def take(self, places: Numbers, names: Sequence[str] | None = None) -> dict[str, Array]:
        """Return copies of the rollouts in these places [N], of some columns only if ``names`` are given."""
        return {name: self.arrays[name].take(places, 0) for name in (self.arrays if names is None else names)}

    def fits(self, rollouts: Columns) -> bool:
        """Whether these rollouts have the same columns, shapes and dtypes."""
        known = {name: (x.shape[1:], x.dtype) for name, x in self.arrays.items()}
        return known == {name: (x.shape[1:], x.dtype) for name, x in rollouts.items()}

    @property
    def bytes_each(self) -> int:
        """Bytes of one rollout; of compressed columns the mean."""
        return sum(x.nbytes for x in self.arrays.values()) // self.capacity
