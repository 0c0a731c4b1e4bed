"""Intervals of means by Student's t distribution ("Student" 1908, The probable error of a mean)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np


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
