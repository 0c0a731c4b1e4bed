"""Which transitions of a saved ring are whole in the ring that loads them.

The two may differ in shape, as those of a parent and its child: one has room for frames that the other had overwritten
and did not save, or its appends reach further back than the other's may.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Restored:
    """Restored transitions from ``first`` on.

    ``frames``: the oldest frame that each of them needs, by its number; ``held``: the oldest that is there.
    """

    def __init__(self, first: int = 0, frames: Sequence[int] | np.ndarray = (), held: int = 0) -> None:
        self._first, self.held = first, held
        # of each transition and those after it
        self._needed = np.minimum.accumulate(np.array(frames, np.int64)[::-1])[::-1]

    def oldest(self, low: int) -> int:
        """The oldest of these transitions from which on all are whole, where frames before ``low`` are overwritten."""
        return self._first + int(np.searchsorted(self._needed, max(low, self.held)))
