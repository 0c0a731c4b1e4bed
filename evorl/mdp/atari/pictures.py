"""From frames of the emulator to pictures: the maximum of two frames, scaled down (Mnih et al. 2015, Methods).

Areas are whole numbers in units of a common divisor, and so are their sums with pixels. They stay below 2^24, so
products in float32 are exact: a picture has the same bits on every machine, whatever pictures are made beside it.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from evorl.mdp.core import Array


class Shrink:
    """Scale frames [B, H, W] to pictures [B, size, size]; a pixel is the mean of the area that it covers, rounded."""

    def __init__(self, height: int, width: int, size: int) -> None:
        self._size = size
        self._rows = areas(height, size)
        self._columns = areas(width, size).T.copy()
        self._total = np.float32(self._rows[0].sum() * self._columns[:, 0].sum())

    def __call__(self, frames: Array) -> Array:
        """Return uint8 [B, size, size] of the pixelwise maxima of frames [B, 2, H, W]."""
        newest = np.maximum(frames[:, 0], frames[:, 1])
        wide = newest.reshape(-1, len(self._columns)).astype(np.float32) @ self._columns
        blocks = wide.reshape(-1, self._rows.shape[1], self._size)
        sums = np.matmul(self._rows, blocks).reshape(len(frames), self._size, self._size)
        pictures: Array = np.rint(sums / self._total).astype(np.uint8)
        return pictures


def areas(long: int, short: int) -> Array:
    """Return the overlaps [s, l] of s equal parts of a line with l parts of it, in units that make them whole.

    ``long`` : ``short`` is l : s in lowest terms. The line of ``long`` pixels repeats this pattern.
    """
    divisor = gcd(long, short)
    many, few = long // divisor, short // divisor
    from_many, from_few = np.arange(many) * few, np.arange(few)[:, None] * many
    overlap = np.minimum(from_many + few, from_few + many) - np.maximum(from_many, from_few)
    return overlap.clip(min=0).astype(np.float32)
