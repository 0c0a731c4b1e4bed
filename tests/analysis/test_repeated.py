"""The comparison of runs with those made again: its p-value by the definition, its level, and its intervals."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ttest_ind

from evorl.analysis.repeated import LEVEL, difference, scores_of
from evorl.analysis.statistics import Floats

SCORES = arrays(np.float64, st.tuples(st.integers(2, 4), st.just(2)), elements=st.integers(-9, 9).map(float))


def p_by_definition(first: Floats, second: Floats) -> float:
    """The share of all divisions of the runs whose largest distance of means, in deviations of all, is as large."""
    scores = np.concatenate([first, second])

    def statistic(members: tuple[int, ...]) -> float:
        others = [run for run in range(len(scores)) if run not in members]
        found = []
        for column in range(scores.shape[1]):
            spread = scores[:, column].std()
            if spread > 0:
                apart = scores[list(members), column].mean() - scores[others, column].mean()
                found.append(abs(apart) / spread)
        return max(found, default=0.0)

    observed = statistic(tuple(range(len(first))))
    every = [statistic(members) for members in combinations(range(len(scores)), len(first))]
    return float(np.mean([one >= observed - 1e-9 for one in every]))


@given(SCORES, SCORES)
@example(np.array([[4.0, 0], [2, 0], [-4, 0]]), np.array([[-7.0, 0], [2, 0], [7, 0]]))  # equal means, but for last bits
def test_the_p_value_is_exact_for_few_runs(first: Floats, second: Floats) -> None:
    assert difference(first, second).p == pytest.approx(p_by_definition(first, second))


def test_sets_that_are_apart_in_one_score_differ() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
    second[:, 1] += 20
    found = difference(first, second)
    assert found.significant and found.p == pytest.approx(2 / 252)
    _, mean = found.by_score
    assert mean.value == pytest.approx(second[:, 1].mean() - first[:, 1].mean()) and mean.low > 15
    assert not difference(first[:4], second[:4]).significant  # 2 of 70 divisions: too few runs to say so


def test_equal_runs_do_not_differ() -> None:
    assert difference(np.ones((5, 2)), np.ones((5, 2))).p == 1
    same = np.arange(10.0).reshape(5, 2)
    assert difference(same, same).p == 1


@pytest.mark.slow
def test_one_in_a_hundred_sets_without_a_difference_differs() -> None:
    rng = np.random.default_rng(1)
    tries = 600
    found = sum(difference(*rng.normal(size=(2, 5, 2))).significant for _ in range(tries))
    assert 1 <= found <= tries * (LEVEL + 3 * np.sqrt(LEVEL / tries))


def test_equivalent_sets_are_apart_by_less_than_the_margin() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(2, 20, 2))
    found = difference(first, second)
    low, high = found.by_score[0].low, found.by_score[0].high
    assert found.by_score[0].value == pytest.approx((low + high) / 2)
    widest = max(abs(x) for one in found.by_score for x in (one.low, one.high))
    assert found.within(widest) and not found.within(widest * 0.99)
    assert not difference(first, second + 1).within(widest)


def test_the_interval_is_that_of_welch() -> None:
    first, second = np.random.default_rng(4).normal(size=(2, 6, 2))
    for one, old, new in zip(difference(first, second[:4]).by_score, first.T, second[:4].T, strict=True):
        assert (one.low, one.high) == pytest.approx(ttest_ind(new, old, equal_var=False).confidence_interval(0.9))


def test_the_intervals_hold_the_true_difference_nine_times_of_ten() -> None:
    rng = np.random.default_rng(3)
    tries = 400
    held = 0
    for _ in range(tries):
        end, _ = difference(rng.normal(size=(5, 2)), rng.normal(2.0, 3.0, size=(5, 2))).by_score
        held += end.low <= 2 <= end.high
    assert abs(held / tries - 0.9) < 0.05


def test_a_set_of_one_run_and_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="two runs"):
        difference(np.ones((1, 2)), np.ones((5, 2)))
    with pytest.raises(ValueError, match="finite scores"):
        difference(np.ones((5, 2)), np.full((5, 2), np.nan))


def test_the_scores_of_a_run_are_its_end_and_its_mean() -> None:
    assert scores_of(np.array([[0.0, 3.0], [2.0, 4.0]])).tolist() == [[3.0, 1.5], [4.0, 3.0]]
