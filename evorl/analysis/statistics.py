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


def thinned(rows: int, most: int) -> NDArray[np.int64]:
    """Return at most ``most`` row numbers of ``rows``, evenly spaced, with the first and the last."""
    return np.linspace(0, rows - 1, min(rows, most)).round().astype(np.int64)


def interpolated(grid: Floats, x: Floats, y: Floats) -> Floats:
    """Return y on a grid `[G]`, linear between the ascending x `[K]` and NaN beyond them."""
    return np.interp(grid, x, y, left=math.nan, right=math.nan)


def held_at(grid: Floats, x: Floats, y: Floats) -> Floats:
    """Return on a grid `[G]` the y `[K]` of the last x at or before each of its points, NaN beyond the ascending x."""
    within = (grid >= x[0]) & (grid <= x[-1])
    return np.where(within, y[np.searchsorted(x, grid, side="right") - 1], math.nan)


def band(curves: Sequence[tuple[Floats, Floats]], grid: Floats, held: bool = False) -> Band:
    """Return mean and 95 % interval over curves (x `[K]` ascending, y `[K]`), interpolated on a grid `[G]`.

    A curve counts only between its first and last point, so the count can change along the grid. With ``held`` each
    y stays until the next x.
    """
    table = np.array([(held_at if held else interpolated)(grid, x, y) for x, y in curves])
    count = np.isfinite(table).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(table, axis=0) / count
        spread = np.sqrt(np.nansum((table - mean) ** 2, axis=0) / (count - 1))
        quantile = np.array([t_quantile(int(n) - 1) if n > 1 else math.nan for n in count])
        half = quantile * spread / np.sqrt(count)
    return Band(grid, mean, half, count)
