"""Figures of curves with their intervals, one panel beside the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from evorl.reproduction.scores import Floats

COLUMNS = 3
"""Most panels side by side."""


def panels(titles: Sequence[str], across: str, up: str, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each title, in rows of at most three."""
    columns = min(len(titles), COLUMNS)
    rows = -(-len(titles) // columns)
    made = Figure(figsize=(5 * columns, 4.5 * rows), layout="constrained")
    every = list(made.subplots(rows, columns, squeeze=False, **options).flat)
    for left_over in every[len(titles) :]:
        left_over.remove()
    axes = every[: len(titles)]
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel=across, ylabel=up)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))  # 50k, 2M
        axis.spines[["top", "right"]].set_visible(False)
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
