"""Axes of figures: round numbers in short form, logarithmic ones, and those of values of several magnitudes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evorl.analysis.statistics import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

MAGNITUDES, MOST_MAGNITUDES = 300, 1e12
"""How far the largest value is from the middle one on an axis that becomes logarithmic, and the most that it shows."""

LABEL = 0.09
"""Height of a tick's label, as a share of the axis."""

_SUFFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def readable_axis(axis: Axis, most: int) -> None:
    """Put at most ``most`` round numbers in short form on an axis."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(lambda x, place: _value(_without_noise(x, axis), place))


def _without_noise(x: float, axis: Axis) -> float:
    """A tick that is zero but for rounding is zero; on an axis of tiny numbers they are no noise."""
    low, high = axis.get_view_interval()
    return 0.0 if abs(x) < 1e-9 * abs(high - low) else x


def log_axis(axes: Axes, values: Floats, axis: Axis) -> None:
    """Make an axis logarithmic, with plain numbers as labels."""
    from matplotlib.ticker import LogLocator, NullLocator

    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    narrow = np.nanmax(values) < 100 * np.nanmin(values)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda x, _: f"{x:g}")


def several_magnitudes(axes: Axes, values: Floats) -> None:
    """Make the vertical axis symmetric-logarithmic if half of the values would lie on one line of a linear one.

    That is so where they are nearer to zero than the width of the line, `MAGNITUDES` below the largest.
    """
    from matplotlib.ticker import FixedLocator, NullLocator, SymmetricalLogLocator

    known = values[np.isfinite(values)]
    sizes = np.abs(known[known != 0])
    if not len(sizes) or sizes.max() < MAGNITUDES * np.median(sizes):
        return
    straight = 10.0 ** np.floor(np.log10(max(np.quantile(sizes, 0.02), sizes.max() / MOST_MAGNITUDES)))
    axes.set_yscale("symlog", linthresh=straight, linscale=0.5)
    decades = SymmetricalLogLocator(linthresh=straight, base=10)
    decades.set_params(numticks=6)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(_value)
    low, high = float(known.min()), float(known.max())
    limits = _beyond(low, -straight), _beyond(high, straight)
    axes.set_ylim(*limits)
    axes.yaxis.set_major_locator(FixedLocator(_apart(axes, np.asarray(decades.tick_values(*limits)), limits)))


def _apart(axes: Axes, ticks: Floats, limits: tuple[float, float]) -> list[float]:
    """Of the ticks within the limits, from zero outwards, those whose labels do not lie on each other."""
    transform = axes.yaxis.get_transform().transform
    low, high = transform(np.array(limits))
    kept: list[float] = []
    for tick in sorted(ticks[(ticks >= limits[0]) & (ticks <= limits[1])].tolist(), key=abs):
        if all(abs(transform(tick) - transform(other)) >= LABEL * (high - low) for other in kept):
            kept.append(tick)
    return kept


def _beyond(limit: float, outwards: float) -> float:
    """A limit of a logarithmic axis with room beyond it; ``outwards``: what a step from zero is there."""
    if abs(limit) < abs(outwards):
        return limit + outwards / 4
    return limit * 1.5 if limit * outwards > 0 else limit / 1.5


def _value(x: float, _: Any) -> str:
    """Format a tick: ``0.25``, ``−15``, ``25k``, ``1.5M``, ``1e+30``."""
    suffixes = _SUFFIXES if abs(x) < 1000 * _SUFFIXES[0][0] else ()
    scale, suffix = next(((scale, suffix) for scale, suffix in suffixes if abs(x) >= scale), (1.0, ""))
    return f"{x / scale:g}{suffix}".replace("-", "−")
