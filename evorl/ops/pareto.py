"""Pareto dominance among objectives to maximise: ranks, crowding, hypervolume.

Letters in shapes: N points, M objectives. Ranks and hypervolumes come from moocore's compiled code
(https://multi-objective.github.io/moocore).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Points = NDArray[np.float64]
_LARGEST = 1e300  # stands for infinity, so that differences are numbers


def ranks(f: Points) -> NDArray[np.intp]:
    """The front [N] that each point [N, M] is in: 0 where nothing dominates it, and so on, peeled front by front."""
    import moocore

    return np.asarray(moocore.pareto_rank(-f), np.intp)


def crowding(f: Points, rank: NDArray[np.intp]) -> Points:
    """Crowding distance [N] of each point within its front (Deb et al. 2002, section III-B); the ends' is infinite.

    The sum over objectives of the distance between a point's two neighbours, in units of the front's range.
    Of equal points the first in order counts as the smaller.
    """
    distance = np.zeros(len(f))
    for column in np.clip(f, -_LARGEST, _LARGEST).T:
        order = np.lexsort((column, rank))
        x, front = column[order], rank[order]
        edge = np.r_[True, front[1:] != front[:-1], True]
        first, last = edge[:-1], edge[1:]
        begins = np.flatnonzero(first)
        span = np.repeat(x[last] - x[first], np.diff(np.r_[begins, len(x)]))
        gap = np.zeros(len(x))
        gap[1:-1] = x[2:] - x[:-2]
        distance[order] += np.where(first | last, np.inf, np.divide(gap, span, out=np.zeros_like(x), where=span > 0))
    return distance


def best(f: Points, n: int) -> NDArray[np.intp]:
    """Indices of the n best of N points, the best first: by rank, then by crowding, then by index."""
    rank = ranks(f)
    return np.lexsort((-crowding(f, rank), rank))[:n]


def hypervolume(f: Points, reference: ArrayLike) -> float:
    """Volume of what the points [N, M] dominate above a reference point [M]."""
    import moocore

    return float(moocore.hypervolume(-f, -np.asarray(reference, np.float64)))
