"""Figures of curves with their intervals, one panel beside the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evorl.reproduction.scores import Floats


def panels(titles: Sequence[str], across: str, up: str, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each title."""
    made = Figure(figsize=(5 * len(titles), 4.5), layout="constrained")
    axes = list(made.subplots(1, len(titles), squeeze=False, **options)[0])
    for one, title in zip(axes, titles, strict=True):
        one.set(title=title, xlabel=across, ylabel=up)
        one.spines[["top", "right"]].set_visible(False)
    return made, axes


def shaded(axes: Axes, grid: Floats, band: Floats, colour: str, label: str) -> None:
    """A line through the middles, and the intervals around it, of `scores.curve`."""
    middle, low, high = band.T
    axes.plot(grid, middle, color=colour, lw=1.5, marker=".", label=label)
    axes.fill_between(grid, low, high, color=colour, alpha=0.15, lw=0)


def legends(made: Figure) -> Figure:
    """The figure with a legend below each panel that has labels."""
    for axes in made.axes:
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=8)
    return made
