"""Whether two sets of runs of one experiment differ, or are equivalent.

A run is described by its scores [M]: its last evaluation, and the mean of all of them. Two tests answer two questions:

- *Do the sets differ?* A permutation test. Its statistic is the largest correlation, over the scores, between a score
  and the set that its run belongs to; its distribution under no difference is that of runs that change sets (Westfall
  and Young 1993, maxT). So one level holds for all scores.
- *Are they equivalent?* Two one-sided tests (Schuirmann 1987): at 5 %, if the 90 % interval of every difference of
  means (Welch's t) lies within a margin.

Letters in shapes: N, K runs of either set, M scores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy

from evorl.analysis.aggregates import Estimate
from evorl.analysis.statistics import Floats
from evorl.util import seed as seeds

LEVEL = 0.01
"""Of the permutation test: one of a hundred pairs of sets without a difference is said to differ."""
CONFIDENCE = 0.9
RESAMPLES = 9_999


class Difference(NamedTuple):
    """The difference between two sets of runs, with its tests."""

    p: float
    """Probability of so large a statistic where there is no difference."""
    by_score: tuple[Estimate, ...]
    """For each score, the mean of the second set minus that of the first, with its 90 % interval."""

    @property
    def significant(self) -> bool:
        return self.p < LEVEL

    def within(self, margin: float) -> bool:
        """Whether the sets are equivalent: no score can be further apart than the margin."""
        return all(-margin <= estimate.low and estimate.high <= margin for estimate in self.by_score)


def difference(first: Floats, second: Floats) -> Difference:
    """Compare two sets of runs by their scores [N, M] and [K, M]. Exact where there are few ways to divide the runs.

    The smallest p-value is 2 over the number of ways: 0.008 for five runs beside five. Raises ValueError for a set of
    fewer than two runs, and for scores that are not finite.
    """
    scores = np.concatenate([first, second])
    if min(len(first), len(second)) < 2 or not np.isfinite(scores).all():
        raise ValueError("each set needs two runs, with finite scores")
    spread = scores.std(axis=0)
    scaled = np.divide(scores - scores.mean(axis=0), spread, out=np.zeros_like(scores), where=spread > 0)

    def statistic(ones: Any, others: Any, axis: int) -> Any:
        """The largest distance of means; ``ones``, ``others``: numbers of runs [..., N] and [..., K]."""
        apart = np.abs(scaled[ones].mean(axis=axis - 1) - scaled[others].mean(axis=axis - 1)).max(axis=-1)
        return apart.round(12)  # equal ones differ in their last bits

    test = scipy.stats.permutation_test(
        (np.arange(len(first)), np.arange(len(first), len(scores))), statistic, permutation_type="independent",
        vectorized=True, n_resamples=RESAMPLES, alternative="greater", axis=-1, rng=seeds.generator("permutation"),
    )  # fmt: skip
    return Difference(float(test.pvalue), tuple(map(_gain, first.T, second.T)))


def _gain(old: Floats, new: Floats) -> Estimate:
    """The difference of means of values [N] and [K], with Welch's interval (1947)."""
    value = float(new.mean() - old.mean())
    each = np.array([x.var(ddof=1) / len(x) for x in (old, new)])  # squared errors of both means
    if not each.any():
        return Estimate(value, value, value)
    freedom = each.sum() ** 2 / (each**2 / [len(old) - 1, len(new) - 1]).sum()
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(each.sum()))
    return Estimate(value, value - half, value + half)


def scores_of(curves: Floats) -> Floats:
    """The scores [N, 2] of runs by their evaluations [N, K]: the last one, and the mean of all."""
    return np.stack([curves[:, -1], curves.mean(axis=1)], axis=1)
