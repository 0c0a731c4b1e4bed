"""Statistics over seeds: means, Student-t intervals and curves on a common grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Band:
    """A curve over seeds on a grid [G]: mean, 95 % half-width (NaN with one seed) and number of seeds."""

    grid: Floats
    mean: Floats
    half: Floats
    count: NDArray[np.int64]


@lru_cache
def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution for integer degrees of freedom.

    Inverts the closed form of the distribution (Abramowitz and Stegun 26.7.3, 26.7.4) by bisection.
    """
    if freedom < 1:
        raise ValueError(f"degrees of freedom must be at least 1, got {freedom}")
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _central(middle, freedom) < 0.95 else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _central(theta: float, freedom: int) -> float:
    """Return P(|T| < sqrt(freedom) tan theta)."""
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = freedom % 2
    term = sine * (cosine if odd else 1.0)
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return (theta + total) * 2 / math.pi if odd else total


def half_width(values: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of the mean of n independent values (Student's t); NaN if n < 2."""
    n = len(values)
    if n < 2:
        return math.nan
    around = np.asarray(values, np.float64) - values[0]  # equal values give exactly 0
    return t_quantile(n - 1) * float(np.std(around, ddof=1)) / math.sqrt(n)


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
