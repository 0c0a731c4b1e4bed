"""Fitness shaping against its definition, item by item."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evorl.ops.ranks import average_ranks, centred_ranks, log_weights, normalised

quick = settings(max_examples=100)
fitnesses = st.lists(st.integers(-5, 5).map(float) | st.just(-math.inf), min_size=1, max_size=12).map(np.array)


@quick
@given(fitnesses)
def test_ranks_count_the_worse_and_half_the_equal(f: np.ndarray) -> None:
    slow = [sum(b < a for b in f) + (sum(b == a for b in f) - 1) / 2 for a in f]
    assert average_ranks(f).tolist() == slow
    expected = [rank / (len(f) - 1) - 0.5 for rank in slow] if len(f) > 1 else [0.0]
    np.testing.assert_allclose(centred_ranks(f), expected, atol=1e-15)
    assert abs(centred_ranks(f).sum()) < 1e-12


@quick
@given(fitnesses)
def test_only_the_order_matters(f: np.ndarray) -> None:
    assert np.array_equal(centred_ranks(f), centred_ranks(np.arctan(f)))
    assert np.array_equal(centred_ranks(f), centred_ranks(np.exp(f / 2)))


@quick
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20).map(np.array))
def test_normalised(f: np.ndarray) -> None:
    if f.std() > 1e-3:
        np.testing.assert_allclose(normalised(f), (f - f.mean()) / f.std(), atol=1e-6)
    assert not normalised(np.full_like(f, f[0])).any()


def test_who_failed_counts_as_the_worst_that_did_not() -> None:
    assert np.array_equal(normalised(np.array([1.0, -math.inf, 3.0])), normalised(np.array([1.0, 1.0, 3.0])))
    assert not normalised(np.full(3, -math.inf)).any()


def test_huge_fitnesses_stay_finite() -> None:
    np.testing.assert_allclose(normalised(np.array([1.7e308, -1.7e308])), [1.0, -1.0])


@pytest.mark.parametrize("n", [1, 2, 7])
def test_log_weights(n: int) -> None:
    raw = [math.log((1 + n) / i) for i in range(1, n + 1)]
    np.testing.assert_allclose(log_weights(n), [w / sum(raw) for w in raw])
    assert (np.diff(log_weights(n)) < 0).all()
