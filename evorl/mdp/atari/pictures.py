"""From frames of the emulator to pictures: the maximum of two frames, scaled down (Mnih et al. 2015, Methods).

Areas are whole numbers in units of a common divisor. Their sums with pixels stay below 2^16 in height alone and below
2^24 in both directions, so uint16 and float32 hold them exactly: a picture has the same bits on every machine, whatever
pictures are made beside it.
"""

from __future__ import annotations

from math import gcd

import numpy as np
import torch

from evorl.mdp.core import Array


class Shrink:
    """Scale frames [B, H, W] to pictures [B, size, size]; a pixel is the mean of the area that it covers, rounded."""

    def __init__(self, height: int, width: int, size: int) -> None:
        self._size = size
        rows = areas(height, size).astype(np.uint16)
        self._block = rows.shape[1]
        self._rows = [[(int(source), row[source]) for source in np.flatnonzero(row)] for row in rows]
        columns = areas(width, size).T.copy()
        self._total = np.float32(rows[0].sum() * columns[:, 0].sum())
        self._columns = torch.from_numpy(columns)

    def __call__(self, frames: Array) -> Array:
        """Return uint8 [B, size, size] of the pixelwise maxima of frames [B, 2, H, W]."""
        newest = np.maximum(frames[:, 0], frames[:, 1])
        width = newest.shape[-1]
        blocks = newest.reshape(-1, self._block, width)
        low = np.empty((len(blocks), len(self._rows), width), np.float32)
        for number, row in enumerate(self._rows):
            low[:, number] = sum(blocks[:, source] * area for source, area in row)
        # torch's product: NumPy's takes a thread for each core, which then wait for those of other processes
        sums = (torch.from_numpy(low).view(-1, len(self._columns)) @ self._columns).numpy()
        pictures: Array = np.rint(sums.reshape(-1, self._size, self._size) / self._total).astype(np.uint8)
        return pictures


def areas(long: int, short: int) -> Array:
    """Return how much of each of l long pixels lies in each of s short ones, [s, l], in units that make them integers.

    l : s is ``long`` : ``short`` in lowest terms. A line of ``long`` pixels repeats this pattern.
    """
    divisor = gcd(long, short)
    many, few = long // divisor, short // divisor
    from_many, from_few = np.arange(many) * few, np.arange(few)[:, None] * many
    overlap = np.minimum(from_many + few, from_few + many) - np.maximum(from_many, from_few)
    return overlap.clip(min=0).astype(np.float32)
