"""Intervals of means by Student's t distribution ("Student" 1908, The probable error of a mean)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np


@lru_cache
def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution for integer degrees of freedom, at least 1."""
    if freedom < 1:
        raise ValueError(f"degrees of freedom must be at least 1, got {freedom}")
    from scipy.special import stdtrit  # here: it takes half a second, which every command would wait for

    return float(stdtrit(freedom, 0.975))


def half_width(values: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of the mean of n independent values (Student's t); NaN if n < 2."""
    n = len(values)
    if n < 2:
        return math.nan
    around = np.asarray(values, np.float64) - values[0]  # equal values give exactly 0
    return t_quantile(n - 1) * float(np.std(around, ddof=1)) / math.sqrt(n)
