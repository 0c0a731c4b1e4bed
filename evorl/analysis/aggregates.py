"""Aggregates of scores with stratified bootstrap intervals, as rliable defines them (Agarwal et al. 2021, 2108.13264).

Scores of runs on K tasks are K arrays [..., N]; the number of runs N may differ between tasks. An interval of
95 % lies between percentiles of the aggregates of resampled scores. Runs are drawn anew within each task (stratified).

Two algorithms on one task are compared by the test of Mann and Whitney (1947), which is exact for few runs. Bootstrap
intervals are not: three runs that are all higher than three others give [1, 1] as the probability of improvement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy  # scipy.stats takes a second to import, and does so when it is first used

from evorl.analysis.statistics import Floats
from evorl.util import seed as seeds

CUT = 0.25
"""Share of the scores that the interquartile mean drops at either end, rounded down."""
RESAMPLES = 2000
MOST_PAIRS = 2**25
"""Pairs of resampled scores that are in memory at once."""
MOST_EXACT = 10_000
"""Pairs of scores up to which a p-value is exact: the time that it takes grows with their square."""
PERMUTATIONS = 9_999
RESOLUTION = 2 / (PERMUTATIONS + 1)
"""The smallest p-value of a test by that many permutations."""


class Estimate(NamedTuple):
    """A statistic and its 95 % interval, which is NaN where a task has a single run."""

    value: float
    low: float
    high: float


def iqm(*tasks: Floats) -> Any:
    """The interquartile mean of the scores of all tasks together, [...]."""
    return scipy.stats.trim_mean(np.concatenate(tasks, axis=-1), CUT, axis=-1)


def mean(*tasks: Floats) -> Any:
    """The mean over tasks of the mean over runs, [...]."""
    return np.mean([task.mean(-1) for task in tasks], axis=0)


def median(*tasks: Floats) -> Any:
    """The median over tasks of the mean over runs, [...]."""
    return np.median([task.mean(-1) for task in tasks], axis=0)


def optimality_gap(target: float) -> Callable[..., Any]:
    """How far scores fall short of a target: the target minus the mean of what scores reach of it, [...]."""
    return lambda *tasks: target - np.minimum(np.concatenate(tasks, axis=-1), target).mean(-1)


def probability_of_improvement(*tasks: Floats) -> Any:
    """The mean over tasks of P(X > Y) + P(X = Y) / 2, [...]; ``tasks``: the scores X of each task, then Y of each."""
    half = len(tasks) // 2
    shares = []
    for x, y in zip(tasks[:half], tasks[half:], strict=True):
        difference = x[..., :, None] - y[..., None, :]
        shares.append(((difference > 0) + 0.5 * (difference == 0)).mean((-2, -1)))
    return np.mean(shares, axis=0)


def estimate(statistic: Callable[..., Any], *tasks: Sequence[float]) -> Estimate:
    """A statistic of the scores of each task, with its interval. The same scores give the same interval."""
    scores = [np.asarray(task, np.float64) for task in tasks]
    value = float(statistic(*scores))
    if min(map(len, scores)) < 2:
        return Estimate(value, np.nan, np.nan)
    batch = max(1, min(RESAMPLES, MOST_PAIRS // max(map(len, scores)) ** 2))
    resampled = scipy.stats.bootstrap(
        scores, lambda *drawn, axis: statistic(*drawn), n_resamples=RESAMPLES, method="percentile", vectorized=True,
        axis=-1, batch=batch, rng=seeds.generator("bootstrap"),
    ).confidence_interval  # fmt: skip
    return Estimate(value, float(resampled.low), float(resampled.high))


def p_value(x: Sequence[float], y: Sequence[float]) -> float:
    """The two-sided p-value of the Mann-Whitney test that the scores of two algorithms on a task are alike.

    It is exact without ties, or that of the normal approximation for more than `MOST_EXACT` pairs. With ties it is that
    of a permutation test.
    """
    drawn = scipy.stats.PermutationMethod(n_resamples=PERMUTATIONS, rng=seeds.generator("bootstrap"))
    exact = "exact" if len(x) * len(y) <= MOST_EXACT else "asymptotic"
    method: Any = drawn if is_sampled([x], [y]) else exact
    return float(scipy.stats.mannwhitneyu(x, y, method=method).pvalue)


def stratified_p_value(x: Sequence[Sequence[float]], y: Sequence[Sequence[float]]) -> float:
    """The two-sided p-value that two algorithms are alike on all of K tasks: ``x``, ``y`` are the scores on each task.

    The permutation test of the probability of improvement: scores change sides within their task only.
    """
    if len(x) == 1:
        return p_value(x[0], y[0])
    rng = seeds.generator("bootstrap")
    observed, drawn = 0.0, np.zeros(PERMUTATIONS)
    for a, b in zip(x, y, strict=True):
        ranks = scipy.stats.rankdata(np.concatenate([a, b]))
        shuffled = rng.permuted(np.broadcast_to(ranks, (len(drawn), len(ranks))), axis=1)
        observed += _share_of_wins(ranks, len(a)) - 0.5
        drawn += _share_of_wins(shuffled, len(a)) - 0.5
    return float((1 + (np.abs(drawn) >= abs(observed) - 1e-12).sum()) / (1 + len(drawn)))


def _share_of_wins(ranks: Floats, n: int) -> Any:
    """U / (n m): the share of pairs that the first n win of n + m scores, of the ranks [..., n + m] of all."""
    lowest, pairs = n * (n + 1) / 2, n * (ranks.shape[-1] - n)
    return (ranks[..., :n].sum(-1) - lowest) / pairs


def is_sampled(x: Sequence[Sequence[float]], y: Sequence[Sequence[float]]) -> bool:
    """Whether that p-value is of permutations drawn at random, and so at least `RESOLUTION`: several tasks, or ties."""
    return len(x) > 1 or len({*x[0], *y[0]}) < len(x[0]) + len(y[0])


def smallest_stratified_p_value(sizes: Sequence[tuple[int, int]]) -> float:
    """The smallest p-value that two groups with so many runs on each task can have."""
    return min(1.0, 2 / math.prod(math.comb(n + m, n) for n, m in sizes))


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm 1979, the step-down procedure)."""
    order = np.argsort(p, kind="stable")
    stepped = np.minimum(np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(p), 0, -1)), 1.0)
    corrected = np.empty(len(p))
    corrected[order] = stepped
    return corrected.tolist()
