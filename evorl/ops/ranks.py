"""Fitness shaping: the utility of each individual in the update of a search distribution.

All but `normalised` depend only on the order of fitnesses, so they are the same under any increasing transform of them.
Fitness is maximised and never NaN; -inf is an individual that failed. Letters in shapes: N individuals.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def average_ranks(f: Array) -> Array:
    """Ranks [N] of fitnesses [N] from 0, the worst, to N - 1; equals share the mean of their places."""
    _, which, count = np.unique(f, return_inverse=True, return_counts=True)
    after = np.cumsum(count)
    return np.asarray((after - (count + 1) / 2)[which], np.float64)


def centred_ranks(f: Array) -> Array:
    """rank / (N - 1) - 1/2, in [-1/2, 1/2] with sum 0 (Salimans et al. 2017, section 2.1); 0 for a single one.

    Equal fitnesses get equal utility (the authors' code breaks ties by position), so a flat landscape moves nothing.
    """
    return average_ranks(f) / max(len(f) - 1, 1) - (0.5 if len(f) > 1 else 0.0)


def normalised(f: Array) -> Array:
    """(f - mean) / standard deviation, 0 where all are equal. Failed individuals count as the worst of the others."""
    sound = np.isfinite(f)
    if not sound.any():
        return np.zeros_like(f)
    f = np.where(sound, f, f[sound].min())
    if f.min() == f.max():
        return np.zeros_like(f)
    f = f / np.abs(f).max()  # squares of what remains cannot overflow
    f = f - math.fsum(f) / len(f)  # fsum rounds once, so the bits do not depend on how a processor adds
    return f / math.sqrt(math.fsum(f * f) / len(f))


def log_weights(n: int) -> Array:
    """Weights [n] of the best n, best first, that fall with the logarithm of the rank and have sum 1.

    log(1 + n) - log(rank), rank from 1 (Hansen 2016, arXiv 1604.00772; Pourchot & Sigaud 2019, arXiv 1810.01222).
    """
    w = np.log(1 + n) - np.log(np.arange(1, n + 1))
    return np.asarray(w / w.sum(), np.float64)
