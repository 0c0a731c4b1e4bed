"""The statistics behind learning curves, against slow transcriptions of their definitions."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.analysis.statistics import band, common_grid, smooth
from evorl.ops.student_t import half_width, t_quantile

NUMBERS = st.floats(-1e3, 1e3)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [
        (1, 12.7062047364),
        (2, 4.3026527297),
        (3, 3.1824463053),
        (4, 2.7764451052),
        (9, 2.2621571628),
        (10, 2.2281388520),
        (29, 2.0452296421),
        (30, 2.0422724563),
        (100, 1.9839715185),
        (1000, 1.9623390808),
    ],
)
def test_t_quantile_is_that_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, abs=2e-9)


@given(st.integers(1, 120))
def test_t_quantile_leaves_a_fortieth_of_the_density_above_it(freedom: int) -> None:
    # x = sqrt(v) tan(a) turns the tail of the density into a smooth integral over an angle
    angle = np.linspace(math.atan(t_quantile(freedom) / math.sqrt(freedom)), math.pi / 2, 4001)
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(math.pi)
    tail = math.exp(log_scale) * np.trapezoid(np.cos(angle) ** (freedom - 1), angle)
    assert tail == pytest.approx(0.025, rel=1e-4)


def test_t_quantile_needs_a_degree_of_freedom() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        t_quantile(0)


@given(st.lists(NUMBERS, min_size=2, max_size=12))
def test_half_width_by_definition(values: list[float]) -> None:
    slow = t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    assert half_width(values) == pytest.approx(slow, rel=1e-9, abs=1e-9)


def test_half_width_of_one_value_is_unknown_and_of_equal_values_is_nothing() -> None:
    assert math.isnan(half_width([3.0]))
    assert half_width([0.97, 0.97, 0.97]) == 0


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(5.0, 2.0, (4000, 4))
    covered = np.mean([abs(row.mean() - 5.0) <= half_width(list(row)) for row in draws])
    assert 0.94 < covered < 0.96


@given(st.lists(st.tuples(st.floats(0, 100), NUMBERS), min_size=1, max_size=40), st.floats(0, 60))
def test_smooth_is_the_mean_over_a_centred_window(points: list[tuple[float, float]], width: float) -> None:
    x, y = np.array(sorted(points)).T
    low, high = x - width / 2, x + width / 2
    slow = [statistics.fmean(y[(x >= a) & (x <= b)]) for a, b in zip(low, high, strict=True)]
    np.testing.assert_allclose(smooth(x, y, width), slow, rtol=1e-9, atol=1e-9)


def test_smooth_leaves_coarse_data_alone() -> None:
    x, y = np.arange(10.0), np.random.default_rng(1).normal(size=10)
    np.testing.assert_allclose(smooth(x, y, 1.9), y, rtol=1e-12)


def test_common_grid_keeps_every_step_or_takes_even_ones() -> None:
    few = common_grid([np.array([1.0, 3.0]), np.array([2.0, 3.0, 9.0])])
    np.testing.assert_array_equal(few, [1, 2, 3, 9])
    many = common_grid([np.arange(1000.0), np.arange(2000.0)], most=5)
    np.testing.assert_allclose(many, [0, 499.75, 999.5, 1499.25, 1999])


@pytest.mark.parametrize("held", [False, True])
@given(values=st.lists(st.lists(NUMBERS, min_size=2, max_size=8), min_size=1, max_size=5))
def test_band_by_definition(held: bool, values: list[list[float]]) -> None:
    curves = [(np.arange(len(y)) * 10.0 + 5.0 * k, np.array(y)) for k, y in enumerate(values)]
    grid = np.linspace(0, 100, 41)
    found, at = band(curves, grid, held), _held if held else _interpolate
    for g, mean, half, count in zip(grid, found.mean, found.half, found.count, strict=True):
        there = [at(float(g), x, y) for x, y in curves if x[0] <= g <= x[-1]]
        assert count == len(there)
        assert math.isnan(mean) if not there else mean == pytest.approx(statistics.fmean(there), rel=1e-9, abs=1e-9)
        slow = half_width(there) if len(there) > 1 else math.nan
        assert half == pytest.approx(slow, rel=1e-6, abs=1e-6, nan_ok=True)


def _held(at: float, x: np.ndarray, y: np.ndarray) -> float:
    return float(y[max(i for i in range(len(x)) if x[i] <= at)])


def _interpolate(at: float, x: np.ndarray, y: np.ndarray) -> float:
    k = max(i for i in range(len(x)) if x[i] <= at)
    if k == len(x) - 1:
        return float(y[k])
    part = (at - x[k]) / (x[k + 1] - x[k])
    return float(y[k] * (1 - part) + y[k + 1] * part)
