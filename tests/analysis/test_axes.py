"""Axes of figures: when one is symmetric-logarithmic, and what it shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.figure import Figure

from evorl.analysis.axes import readable_axis, several_magnitudes


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        (-np.geomspace(300, 1e-3, 50), "symlog"),  # a problem on its way to 0
        (np.r_[-np.geomspace(300, 1e-3, 50), 1e-3], "symlog"),
        (np.linspace(-1400, -150, 50), "linear"),
        (np.linspace(-1, 1, 50), "linear"),
        ([0, 0, 0, 5], "linear"),
        ([0, 0], "linear"),
        ([np.nan, np.inf], "linear"),
    ],
)
def test_an_axis_is_logarithmic_where_most_values_would_lie_on_one_line(values: Sequence[float], scale: str) -> None:
    axes = Figure().subplots()
    several_magnitudes(axes, np.asarray(values, np.float64))
    assert axes.get_yscale() == scale


def test_all_values_lie_within_the_axis_and_its_ticks_are_few() -> None:
    values = np.r_[-np.geomspace(300, 1e-14, 90), 0.0]
    axes = Figure().subplots()
    several_magnitudes(axes, values)
    low, high = axes.get_ylim()
    assert low < values.min() and high > values.max()
    shown = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert 3 <= len(shown) <= 9


@pytest.mark.parametrize("size", [1e-14, 1e-5, 1e-2])
def test_no_label_of_a_logarithmic_axis_lies_on_another(size: float) -> None:
    axes = Figure(figsize=(3.6, 2.2)).subplots()
    several_magnitudes(axes, np.r_[np.linspace(-size, size, 90), 10.0, -8.0])
    axes.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_yticklabels() if label.get_text()]
    assert len(boxes) > 2 and not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


@pytest.mark.parametrize(("low", "high"), [(0, 4e-17), (-1e-15, 1e-15), (0, 1), (-1e6, 2e6)])
def test_ticks_differ_on_an_axis_of_any_size(low: float, high: float) -> None:
    axes = Figure().subplots()
    axes.set_ylim(low, high)
    readable_axis(axes.yaxis, 5)
    axes.figure.canvas.draw()
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert len(labels) == len({*labels}) > 2 and "0" in labels
