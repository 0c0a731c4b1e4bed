"""Operators against slow ones that take one number at a time, as Deb's NSGA-II does."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random as Dice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp, kstest

from evorl.ec import operators

ALPHA = 1e-3  # of one test; seeds are fixed, so it passes or fails for good


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ------------------------------------------------------------------ tournament


def test_the_larger_key_wins_and_the_next_decides_between_equals() -> None:
    keys = np.array([1.0, 0.0, 1.0, 2.0]), np.array([5.0, 9.0, 6.0, 0.0])
    first, second = np.array([0, 0, 2, 3, 1]), np.array([1, 2, 0, 0, 1])
    assert operators.beats(first, second, *keys).tolist() == [True, False, True, True, True]


@given(st.integers(1, 30), st.integers(1, 60), st.integers(0, 1000))
def test_winners_are_no_worse_than_whom_they_met(size: int, n: int, seed: int) -> None:
    key = generator(seed).permutation(size).astype(float)
    winners, losers = (operators.tournament(generator(seed), n, one) for one in (key, -key))  # the same pairs
    assert (key[winners] >= key[losers]).all()
    met = np.bincount(np.r_[winners, losers], minlength=size)
    assert len(met) == size and np.ptp(met) <= 1 and met.sum() == 2 * n


def test_everybody_meets_equally_often() -> None:
    size, met = 10, np.zeros(10)
    key = np.arange(10.0)
    for seed in range(2000):
        winners = operators.tournament(generator(seed), 5, key)
        assert winners.max() == 9 and 0 not in winners  # all ten took part, and nobody met itself
        met[winners] += 1
    chances = np.arange(10) / 9  # of winning against one of the others
    np.testing.assert_allclose(met / 2000, chances, atol=4 * 0.5 / math.sqrt(2000))
    assert np.bincount(operators.tournament(generator(), 10, key), minlength=size)[9] == 2


def test_between_equals_the_draw_decides() -> None:
    wins = np.bincount(operators.tournament(generator(), 40_000, np.zeros(4)), minlength=4)
    np.testing.assert_allclose(wins / 40_000, 0.25, atol=0.01)


def test_one_alone_wins() -> None:
    assert operators.tournament(generator(), 3, np.zeros(1)).tolist() == [0, 0, 0]


# ------------------------------------------------------------------ crossover


def slow_sbx(dice: Dice, a: float, b: float, low: float, high: float, rate: float, eta: float) -> tuple[float, float]:
    """One gene of one pair, after Deb's own code."""
    if dice.random() >= rate or dice.random() >= 0.5 or a == b:
        return a, b
    y1, y2, u = min(a, b), max(a, b), dice.random()

    def factor(beta: float) -> float:
        alpha = 2.0 - beta ** -(eta + 1.0)
        if u <= 1.0 / alpha:
            return (u * alpha) ** (1.0 / (eta + 1.0))
        return (1.0 / (2.0 - u * alpha)) ** (1.0 / (eta + 1.0))

    c1 = 0.5 * ((y1 + y2) - factor(1.0 + 2.0 * (y1 - low) / (y2 - y1)) * (y2 - y1))
    c2 = 0.5 * ((y1 + y2) + factor(1.0 + 2.0 * (high - y2) / (y2 - y1)) * (y2 - y1))
    c1, c2 = min(max(c1, low), high), min(max(c2, low), high)
    return (c2, c1) if dice.random() < 0.5 else (c1, c2)


@pytest.mark.parametrize(
    ("a", "b", "low", "high", "eta"),
    [
        (0.3, 0.7, 0, 1, 20), (0.7, 0.3, 0, 1, 2), (0.01, 0.9, 0, 1, 1),
        (-4.9, 4.99, -5, 5, 20), (0.0, 1.0, 0, 1, 5), (0.4, 0.6, 0, 1, 0),
    ],
)  # fmt: skip
def test_sbx_has_the_distribution_of_the_slow_one(a: float, b: float, low: float, high: float, eta: float) -> None:
    n, dice = 20_000, Dice(1)
    slow = np.array([slow_sbx(dice, a, b, low, high, 0.9, eta) for _ in range(n)])
    column = np.ones((n, 1))
    ends = np.array([float(low)]), np.array([float(high)])
    fast = operators.sbx(generator(), a * column, b * column, *ends, crossed=generator(9).random(n) < 0.9, eta=eta)
    for ours, theirs in zip(fast, slow.T, strict=True):
        assert ks_2samp(ours[:, 0], theirs).pvalue > ALPHA
    assert ks_2samp(fast[0][:, 0] + fast[1][:, 0], slow.sum(axis=1)).pvalue > ALPHA  # their dependence too


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 50), st.floats(0, 40))
def test_the_spread_is_the_slow_one(u: float, room: float, eta: float) -> None:
    alpha = 2 - (1 + 2 * room) ** -(eta + 1)
    power = 1 / (eta + 1)
    expected = (u * alpha) ** power if u <= 1 / alpha else (1 / (2 - u * alpha)) ** power
    found = operators.spread(np.array([u]), np.array([room]), eta)[0]
    assert found == pytest.approx(expected, rel=1e-9) and found <= (1 + 2 * room) * (1 + 1e-9)


def test_without_bounds_near_the_spread_is_that_of_the_paper() -> None:
    eta, u = 3.0, generator().random(50_000)
    beta = operators.spread(u, np.full(len(u), 1e9), eta)

    def distribution(x: np.ndarray) -> np.ndarray:  # of the density (η+1)/2 β^η up to 1, (η+1)/2 β^-(η+2) beyond
        with np.errstate(divide="ignore"):
            return np.where(x <= 1, 0.5 * x ** (eta + 1), 1 - 0.5 * x ** -(eta + 1))

    assert kstest(beta, distribution).pvalue > ALPHA


def test_sbx_crosses_pairs_and_genes_as_often_as_it_should() -> None:
    a, b = np.zeros((20_000, 4)) + 0.2, np.zeros((20_000, 4)) + 0.8
    crossed = np.arange(20_000) % 5 < 3
    one, _ = operators.sbx(generator(), a, b, np.zeros(4), np.ones(4), crossed=crossed, eta=5)
    changed = one != a
    assert changed.mean() == pytest.approx(0.3, abs=0.01)
    assert changed.any(axis=1).mean() == pytest.approx(0.6 * (1 - 0.5**4), abs=0.015)
    assert not changed[~crossed].any()
    twins, _ = operators.sbx(generator(), a, a, np.zeros(4), np.ones(4), crossed=crossed, eta=5)
    assert (twins == a).all()


# ------------------------------------------------------------------ mutation


def slow_polynomial(dice: Dice, y: float, low: float, high: float, rate: float, eta: float) -> float:
    """One gene, after Deb's own code."""
    if dice.random() >= rate:
        return y
    delta1, delta2 = (y - low) / (high - low), (high - y) / (high - low)
    u, power = dice.random(), 1.0 / (eta + 1.0)
    if u <= 0.5:
        value = 2.0 * u + (1.0 - 2.0 * u) * (1.0 - delta1) ** (eta + 1.0)
        step = value**power - 1.0
    else:
        value = 2.0 * (1.0 - u) + 2.0 * (u - 0.5) * (1.0 - delta2) ** (eta + 1.0)
        step = 1.0 - value**power
    return min(max(y + step * (high - low), low), high)


@pytest.mark.parametrize(
    ("y", "low", "high", "eta"), [(0.5, 0, 1, 20), (0.02, 0, 1, 20), (4.9, -5, 5, 3), (0.0, 0, 1, 1), (1.0, 0, 1, 0)]
)
def test_polynomial_has_the_distribution_of_the_slow_one(y: float, low: float, high: float, eta: float) -> None:
    n, dice = 20_000, Dice(2)
    slow = np.array([slow_polynomial(dice, y, low, high, 0.7, eta) for _ in range(n)])
    ends = np.array([float(low)]), np.array([float(high)])
    fast = operators.polynomial(generator(), np.full((n, 1), y), *ends, rate=0.7, eta=eta)
    assert ks_2samp(fast[:, 0], slow).pvalue > ALPHA


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 40))
def test_the_shift_is_the_slow_one(u: float, place: float, eta: float) -> None:
    power = 1 / (eta + 1)
    if u <= 0.5:
        expected = (2 * u + (1 - 2 * u) * (1 - place) ** (eta + 1)) ** power - 1
    else:
        expected = 1 - (2 * (1 - u) + 2 * (u - 0.5) * place ** (eta + 1)) ** power
    assert operators.shift(np.array([u]), np.array([place]), eta)[0] == pytest.approx(expected, abs=1e-9)


def test_mutation_touches_as_many_genes_as_it_should() -> None:
    x = np.full((5000, 8), 0.5)
    child = operators.polynomial(generator(), x, np.zeros(8), np.ones(8), rate=1 / 8, eta=20)
    assert (child != x).mean() == pytest.approx(1 / 8, abs=0.01) and (x == 0.5).all()


# ------------------------------------------------------------------ bounds


@pytest.mark.parametrize("eta", [0.0, 1.0, 20.0])
def test_a_million_draws_stay_within_bounds(eta: float) -> None:
    low = np.array([0.0, -5.0, 1e-9, -1e6, 3.0, 0.1])
    high = np.array([1.0, 5.0, 1.1e-9, 1e6, 3.0, 0.3])
    draw, n = generator(3), 1_000_000 // 6 // 2
    a, b = draw.uniform(low, high, (n, 6)), draw.uniform(low, high, (n, 6))
    a[: n // 4], b[n // 8 : n // 3] = low, high  # parents on the bounds, and both on them
    b[n // 2 :] = np.clip(np.nextafter(a[n // 2 :], np.inf), low, high)  # and next to each other
    children = np.concatenate(operators.sbx(draw, a, b, low, high, crossed=np.ones(n, bool), eta=eta))
    children = np.concatenate([children, operators.polynomial(draw, children, low, high, rate=1.0, eta=eta)])
    assert children.size >= 1_000_000 and np.isfinite(children).all()
    assert (children >= low).all() and (children <= high).all()


def test_no_genes_at_all() -> None:
    none = np.zeros((3, 0))
    one, two = operators.sbx(generator(), none, none, none[0], none[0], crossed=np.ones(3, bool), eta=20)
    assert one.shape == two.shape == (3, 0)
    assert operators.polynomial(generator(), none, none[0], none[0], rate=1.0, eta=20).shape == (3, 0)


# ------------------------------------------------------------------ weights


def test_gaussian_mutation() -> None:
    weights = np.linspace(-1, 1, 50_000, dtype=np.float32).reshape(100, 500)
    child = operators.gaussian(generator(), weights, 0.3)
    assert child.dtype == np.float32 and child.shape == weights.shape
    assert kstest(((child - weights) / 0.3).ravel(), "norm").pvalue > ALPHA


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 100))
def test_layers_are_taken_whole(parts: list[int], seed: int) -> None:
    size = sum(parts)
    a, b = np.zeros((40, size), np.float32), np.ones((40, size), np.float32)
    child = operators.layerwise(generator(seed), a, b, parts)
    assert child.dtype == np.float32
    for begin, end in pairwise(np.cumsum([0, *parts])):
        assert (child[:, begin:end] == child[:, begin : begin + 1]).all()
    whole = operators.layerwise(generator(seed), a, b, ())
    assert (whole == whole[:, :1]).all()


def test_layers_come_from_either_parent_by_a_coin_each() -> None:
    a, b = np.zeros((20_000, 3), np.float32), np.ones((20_000, 3), np.float32)
    child = operators.layerwise(generator(), a, b, (1, 2))
    both = np.bincount((2 * child[:, 0] + child[:, 1]).astype(int), minlength=4) / len(child)
    np.testing.assert_allclose(both, 0.25, atol=0.015)
