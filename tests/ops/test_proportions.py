"""Wilson's interval by its definition, by golden numbers, and by how often it holds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.ops.proportions import Z95, wilson


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_its_ends_are_the_shares_from_which_the_sample_is_z_deviations_away(sample: tuple[int, int]) -> None:
    k, n = sample
    for share in wilson(k, n):
        assert (k / n - share) ** 2 == pytest.approx(Z95**2 * share * (1 - share) / n, abs=1e-12)


@pytest.mark.parametrize(("k", "n", "low", "high"), [(55, 100, 0.4524, 0.6439), (10, 10, 0.7225, 1.0)])
def test_golden_numbers(k: int, n: int, low: float, high: float) -> None:
    assert wilson(k, n) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.parametrize(
    ("bound", "least", "n"),
    [
        (0.5, 32, 50), (0.5, 60, 100), (0.5, 114, 200), (0.5, 220, 400), (0.5, 531, 1000),
        (0.55, 65, 100), (0.55, 124, 200), (0.55, 581, 1000),
    ],
)  # fmt: skip
def test_the_fewest_wins_that_show_a_better_player(bound: float, least: int, n: int) -> None:
    assert wilson(least, n)[0] > bound >= wilson(least - 1, n)[0]


def test_it_holds_the_share_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    for share in (0.05, 0.3, 0.5):
        bounds = [wilson(int(k), 60) for k in rng.binomial(60, share, 4000)]
        assert 0.93 < np.mean([low <= share <= high for low, high in bounds]) < 0.98


def test_without_trials_nothing_is_known() -> None:
    assert wilson(0, 0) == (0, 1)


@pytest.mark.parametrize("k", [-1, 11, math.nan])
def test_impossible_counts_are_refused(k: float) -> None:
    with pytest.raises(ValueError, match="successes must lie between 0 and 10"):
        wilson(k, 10)
