"""Pareto dominance among objectives to maximise: ranks, crowding, hypervolume.

Letters in shapes: N points, M objectives. Ranks and hypervolumes come from moocore's compiled code
(https://multi-objective.github.io/moocore).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Points = NDArray[np.float64]


def _finite(f: Points) -> Points:
    """With 1e300 for infinity: moocore ranks infinities wrongly, and a difference of two is no number."""
    return np.clip(f, -1e300, 1e300)


def ranks(f: Points) -> NDArray[np.intp]:
    """The front [N] that each point [N, M] is in: 0 where nothing dominates it, and so on, peeled front by front."""
    import moocore

    return np.asarray(moocore.pareto_rank(-_finite(f)), np.intp)


def front(f: Points) -> NDArray[np.bool_]:
    """A mask [N] of the points [N, M] that no other dominates. Equal points do not dominate each other."""
    import moocore

    return np.asarray(moocore.is_nondominated(-_finite(f), keep_weakly=True), np.bool_)


def crowding(f: Points, rank: NDArray[np.intp]) -> Points:
    """Crowding distance [N] of each point within its front (Deb et al. 2002, section III-B); the ends have infinity.

    The sum over objectives of the distance between a point's two neighbours, in units of the front's range.
    Of equal points the first in order counts as the smaller.
    """
    distance = np.zeros(len(f))
    for column in _finite(f).T:
        order = np.lexsort((column, rank))
        x, front = column[order], rank[order]
        ends = np.r_[True, front[1:] != front[:-1], True]
        inner = ~(ends[:-1] | ends[1:])
        span = np.repeat(x[ends[1:]] - x[ends[:-1]], np.diff(np.flatnonzero(ends)))
        gap = np.zeros_like(x)
        gap[1:-1] = x[2:] - x[:-2]
        share = np.divide(gap, span, out=np.zeros_like(x), where=inner & (span > 0))
        distance[order] += np.where(inner, share, np.inf)
    return distance


def best(f: Points, n: int) -> NDArray[np.intp]:
    """Indices of the n best of N points, the best first: by rank, then by crowding, then by index."""
    rank = ranks(f)
    return np.lexsort((-crowding(f, rank), rank))[:n]


def hypervolume(f: Points, reference: ArrayLike) -> float:
    """Volume of what the points [N, M] dominate above a reference point [M]."""
    import moocore

    return float(moocore.hypervolume(-_finite(f), -np.asarray(reference, np.float64)))
