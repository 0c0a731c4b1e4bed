"""Statistics over seeds: means, Student-t intervals and curves on a common grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evorl.ops.student_t import t_quantile

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Band:
    """A curve over seeds on a grid [G]: mean, 95 % half-width (NaN with one seed) and number of seeds."""

    grid: Floats
    mean: Floats
    half: Floats
    count: NDArray[np.int64]


def smooth(x: Floats, y: Floats, width: float) -> Floats:
    """Return the mean of y `[K]` over a window of ``width`` centred on each of the ascending x `[K]`.

    Points further apart than half the window are unchanged.
    """
    first = np.searchsorted(x, x - width / 2, side="left")
    past = np.searchsorted(x, x + width / 2, side="right")
    offset = y.mean() if len(y) else 0.0  # sums around the mean reduce the rounding error
    sums = np.concatenate([[0.0], np.cumsum(y - offset)])
    return np.asarray(offset + (sums[past] - sums[first]) / (past - first), np.float64)


def common_grid(xs: Sequence[Floats], most: int = 400) -> Floats:
    """Return the union of all x, or ``most`` evenly spaced points if the union is larger."""
    union = np.unique(np.concatenate(xs))
    return union if len(union) <= most else np.linspace(union[0], union[-1], most)


def band(curves: Sequence[tuple[Floats, Floats]], grid: Floats) -> Band:
    """Return mean and 95 % interval over curves (x `[K]` ascending, y `[K]`), interpolated on a grid `[G]`.

    A curve counts only between its first and last point, so the count can change along the grid.
    """
    table = np.array([np.interp(grid, x, y, left=math.nan, right=math.nan) for x, y in curves])
    count = np.isfinite(table).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(table, axis=0) / count
        spread = np.sqrt(np.nansum((table - mean) ** 2, axis=0) / (count - 1))
        quantile = np.array([t_quantile(int(n) - 1) if n > 1 else math.nan for n in count])
        half = quantile * spread / np.sqrt(count)
    return Band(grid, mean, half, count)
