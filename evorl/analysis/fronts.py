"""Pareto fronts drawn: two objectives as a plane, three or four in pairs, more as parallel coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evorl.analysis.figures import COLOURS, INK, MUTED, readable_axis
from evorl.analysis.population import Census
from evorl.analysis.statistics import Floats
from evorl.analysis.sweep_figure import SHADES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.figure import Figure

FEW = 800
"""Dots or lines that are drawn as such; more are a picture within the picture."""
DOTS = 6000
"""Individuals that a picture shows, about; evenly chosen."""
OUTLIERS = 0.02
"""Share of individuals, the worst, that may be left out of a picture."""
MOMENTS = (0.05, 0.1, 0.2, 0.4)
"""Parts of the run at which its front is drawn, besides the last."""
ABOVE = 8
"""Letters of what colours stand for up to which it has room above their bar; what is longer stands beside it."""
PAIRED = 4
"""Objectives up to which they are drawn in pairs."""


def fronts(census: Census) -> Figure:
    """The last front, and those before it, among all individuals coloured by when they were told."""
    if len(census.names) > PAIRED:
        return _parallel(census)
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    pairs = list(combinations(range(len(census.names)), 2))
    columns = min(len(pairs), 3)
    lines = -(-len(pairs) // columns)
    size = (5.2, 3.9) if len(pairs) == 1 else (3.5 * columns + 0.8, 3.3 * lines)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    scale = Normalize(0, census.steps[-1])
    for axes, (across, up) in zip(grid, pairs, strict=True):
        _plane(axes, census, across, up, scale)
        axes.set(xlabel=census.names[across], ylabel=census.names[up])
    grid[0].set_title("Pareto front (orange)" if len(pairs) > 1 else "Pareto front (orange); lines: as it was before")
    bar(figure, list(grid), scale, "steps")
    return figure


def _plane(axes: Axes, census: Census, across: int, up: int, scale: Normalize) -> None:
    x, y = census.objectives[:, across], census.objectives[:, up]
    many, shown, last = len(x) > FEW, sample(len(x)), census.front
    axes.scatter(
        x[shown], y[shown], c=census.steps[shown], cmap=shades(), norm=scale, s=4 if many else 12,
        linewidths=0, alpha=0.6, rasterized=many, zorder=1,
    )  # fmt: skip
    if len(census.names) == 2:
        for part in MOMENTS:
            count = int(np.searchsorted(census.steps, part * census.steps[-1], side="right"))
            if count:
                shade = shades()(scale(census.steps[count - 1]))
                _stairs(axes, x, y, census.front_of(count), color=shade, linewidth=1.2, zorder=2)
        _stairs(axes, x, y, last, color=INK, linewidth=1.6, zorder=4)
    few = last[np.linspace(0, len(last) - 1, min(len(last), 250)).astype(int)]
    axes.plot(x[few], y[few], "o", color=COLOURS[1], markersize=2.2, mew=0, zorder=5)
    axes.set(xlim=limits(x), ylim=limits(y))
    readable_axis(axes.xaxis, 5)
    readable_axis(axes.yaxis, 5)
    axes.grid(axis="both")


def _stairs(axes: Axes, x: Floats, y: Floats, rows: NDArray[np.intp], **style: Any) -> None:
    """The edge of what the rows dominate: below and to the left of each, since both are maximised."""
    axes.step(x[rows], y[rows], where="pre", **style)


def _parallel(census: Census) -> Figure:
    """A line for each individual of the last front; every upright from the least to the largest of the front."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    f = census.objectives[census.front]
    low, span = f.min(axis=0), np.where(np.ptp(f, axis=0) > 0, np.ptp(f, axis=0), 1.0)
    heights = (f - low) / span
    figure = Figure(figsize=(max(6.2, 1.1 * f.shape[1] + 1), 4.0))
    axes = figure.subplots(gridspec_kw={"left": 0.09, "right": 0.95, "top": 0.88, "bottom": 0.1})
    lines = [np.column_stack([np.arange(f.shape[1]), row]) for row in heights]
    shown = LineCollection(lines, cmap=shades(), linewidths=0.9, alpha=0.6, rasterized=len(f) > FEW)
    shown.set_array(heights[:, 0])
    axes.add_collection(shown)
    axes.set_xticks(range(f.shape[1]), census.names)
    for k, (least, most) in enumerate(zip(low, low + span, strict=True)):
        axes.text(k, -0.02, f"{least:.3g}", ha="center", va="top", fontsize=8.5, color=MUTED)
        axes.text(k, 1.02, f"{most:.3g}", ha="center", va="bottom", fontsize=8.5, color=MUTED)
    axes.set(xlim=(-0.3, f.shape[1] - 0.7), ylim=(-0.1, 1.1), yticks=[])
    axes.set_title(f"Pareto front: {len(f)} individuals, coloured by {census.names[0]}")
    axes.grid(axis="x")
    return figure


# ------------------------------------------------------------------ what pictures of populations share


def shades() -> ListedColormap:
    """From dark to bright, told from white and from black paper."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis"](np.linspace(*SHADES, 256)))


def sample(count: int, most: int = DOTS) -> NDArray[np.intp]:
    """Of so many rows those to draw, about ``most``, evenly spread over the file whatever its period."""
    golden = (np.arange(count) * 0.6180339887498949) % 1.0
    return np.flatnonzero(golden < most / count)


def sane(values: Floats) -> tuple[float, float]:
    """From the least to the largest of finite values, without the worst few where these are far away."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, near, high = float(known.min()), float(np.quantile(known, OUTLIERS)), float(known.max())
    return (near if high - low > 1.5 * (high - near) else low), high


def limits(values: Floats) -> tuple[float, float]:
    """The ends of an axis for `sane` values, with a little room."""
    low, high = sane(values)
    room = 0.05 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def bar(figure: Figure, axes: Sequence[Axes], scale: Normalize, title: str) -> None:
    """What the colours stand for, to the right of the axes."""
    from matplotlib.cm import ScalarMappable

    shown = figure.colorbar(ScalarMappable(scale, shades()), ax=axes, pad=0.015, aspect=28, fraction=0.03)
    shown.outline.set(visible=False)
    shown.ax.tick_params(length=0, labelsize=8.5)
    readable_axis(shown.ax.yaxis, 5)
    if len(title) > ABOVE:
        shown.set_label(title, fontsize=8.5, color=MUTED, labelpad=2)
    else:
        shown.ax.set_title(title, fontsize=8.5, fontweight="normal", color=MUTED, loc="left")
