"""Weights of opponents: golden numbers, and what holds for any scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.ops.matchmaking import Weighting, pfsp

scores = st.lists(st.floats(0, 1), min_size=1, max_size=9).map(np.array)
weightings = pytest.mark.parametrize("weighting", ["hard", "even", "capped"])


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("hard", (0.0093, 0.2336, 0.7570)), ("even", (0.2093, 0.5814, 0.2093)), ("capped", (0.0909, 0.4545, 0.4545))],
)
def test_golden_numbers(weighting: Weighting, expected: tuple[float, ...]) -> None:
    assert pfsp(np.array([0.9, 0.5, 0.1]), weighting) == pytest.approx(expected, abs=5e-5)


@weightings
@given(scores)
def test_they_are_probabilities(weighting: Weighting, score: np.ndarray) -> None:
    p = pfsp(score, weighting)
    assert (p >= 0).all() and p.sum() == pytest.approx(1)


@weightings
@pytest.mark.parametrize("all_alike", [0.0, 1.0])
def test_where_all_are_beaten_or_none_everybody_is_met(weighting: Weighting, all_alike: float) -> None:
    assert pfsp(np.full(4, all_alike), weighting) == pytest.approx([0.25] * 4)


@given(scores)
def test_hard_never_prefers_whom_the_learner_beats_more_often(score: np.ndarray) -> None:
    order = np.argsort(score)
    assert (np.diff(pfsp(score, "hard")[order]) <= 1e-12).all()


@pytest.mark.parametrize("score", [[], [1.1], [-0.1], [np.nan]])
def test_what_is_no_score_is_refused(score: list[float]) -> None:
    with pytest.raises(ValueError, match="scores must lie in"):
        pfsp(np.array(score, np.float64))
