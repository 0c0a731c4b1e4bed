"""Whether two sets of runs of one experiment differ: a permutation test, and what differences it leaves possible.

A run is told by its scores [M] (say the return at its end, and the mean of all of its evaluations). The statistic is
the largest correlation, over the M scores, between a score and the set that its run belongs to. Its distribution under
no difference is that of runs that change sets (Westfall and Young 1993, maxT), so one level holds for all scores.

Letters in shapes: N, K runs of either set, M scores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import permutation_test

from evorl.analysis.aggregates import Estimate, estimate
from evorl.analysis.statistics import Floats
from evorl.util import seed as seeds

LEVEL = 0.01
"""Of the test: one of a hundred pairs of sets without a difference is said to differ."""
RESAMPLES = 9_999


class Difference(NamedTuple):
    """What two sets of runs tell about the difference between them."""

    p: float
    """Probability of so large a statistic where there is no difference."""
    by_score: tuple[Estimate, ...]
    """For each score, the mean of the second set minus that of the first, with its 95 % interval."""

    @property
    def found(self) -> bool:
        return self.p < LEVEL


def difference(first: Floats, second: Floats) -> Difference:
    """Compare two sets of runs by their scores [N, M] and [K, M]. Exact where there are few ways to divide the runs.

    The smallest p-value is 2 over the number of ways: 0.008 for five runs beside five. Raises ValueError for a set of
    fewer than two runs.
    """
    if min(len(first), len(second)) < 2:
        raise ValueError("each set needs two runs")
    scores = np.concatenate([first, second])
    spread = scores.std(axis=0)
    scaled = np.divide(scores - scores.mean(axis=0), spread, out=np.zeros_like(scores), where=spread > 0)

    def statistic(ones: Any, others: Any, axis: int) -> Any:
        """The largest distance of means; ``ones``, ``others``: numbers of runs [..., N] and [..., K]."""
        return np.abs(scaled[ones].mean(axis=axis - 1) - scaled[others].mean(axis=axis - 1)).max(axis=-1)

    found = permutation_test(
        (np.arange(len(first)), np.arange(len(first), len(scores))), statistic, permutation_type="independent",
        vectorized=True, n_resamples=RESAMPLES, alternative="greater", axis=-1, rng=seeds.generator("permutation"),
    )  # fmt: skip
    each = [estimate(_gain, new, old) for new, old in zip(second.T, first.T, strict=True)]
    return Difference(float(found.pvalue), tuple(each))


def _gain(new: Floats, old: Floats) -> Any:
    return new.mean(-1) - old.mean(-1)


def scores_of(curves: Floats) -> Floats:
    """The scores [N, 2] of runs by their evaluations [N, K]: the last one, and the mean of all."""
    return np.stack([curves[:, -1], curves.mean(axis=1)], axis=1)
