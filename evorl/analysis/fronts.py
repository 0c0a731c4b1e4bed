"""Figures of Pareto fronts: one plane for two objectives, pairs for three or four, parallel coordinates for more.

Also the helpers that all figures of populations share: colours, colour bar, sampling, robust axis limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evorl.analysis.axes import readable_axis
from evorl.analysis.figures import COLOURS, INK, MUTED
from evorl.analysis.population import PopulationLog
from evorl.analysis.statistics import Floats, thinned
from evorl.analysis.sweep_figure import SHADES
from evorl.util.numbers import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.figure import Figure

STEPS = "environment steps"
RASTER_ABOVE = 800
"""Number of dots or lines above which they are rasterised within the SVG."""
MAX_DOTS = 6000
"""Approximate number of individuals drawn, evenly sampled."""
OUTLIERS = 0.02
"""Share of the worst individuals that may lie outside the axes."""
EARLIER_FRONTS = (0.05, 0.1, 0.2, 0.4)
"""Fractions of the steps at which earlier fronts are drawn."""
MAX_BAR_TITLE = 8
"""Characters of a colour bar's title that fit above it; a longer title is written beside it."""
MAX_PAIRED = 4
"""Most objectives that are drawn in pairs."""


def front_figure(log: PopulationLog) -> Figure:
    """Draw the final front, earlier fronts, and all individuals coloured by their environment step."""
    if len(log.names) > MAX_PAIRED:
        return _parallel(log)
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    pairs = list(combinations(range(len(log.names)), 2))
    columns = min(len(pairs), 3)
    lines = -(-len(pairs) // columns)
    size = (5.2, 3.9) if len(pairs) == 1 else (3.5 * columns + 0.8, 3.3 * lines)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    scale = Normalize(0, log.steps[-1])
    for axes, (across, up) in zip(grid, pairs, strict=True):
        _draw_pair(axes, log, across, up, scale)
        axes.set(xlabel=log.names[across], ylabel=log.names[up])
    grid[0].set_title("Pareto front")
    _front_legend(figure, earlier=len(pairs) == 1)
    colour_bar(figure, list(grid), scale, STEPS)
    return figure


def _front_legend(figure: Figure, earlier: bool) -> None:
    from matplotlib.lines import Line2D

    dot: dict[str, Any] = {"marker": "o", "mew": 0}
    front = Line2D([], [], color=INK if earlier else "none", markerfacecolor=COLOURS[1], markersize=4, **dot)
    individual = Line2D([], [], color="none", markerfacecolor=shades()(0.5), markersize=4, alpha=0.7, **dot)
    handles = {"final front": front, "individuals, coloured by step": individual}
    if earlier:
        shares = ", ".join(f"{100 * part:g}" for part in EARLIER_FRONTS)
        handles[f"front after {shares} % of the steps"] = Line2D([], [], color=shades()(0.35), linewidth=1.2)
    figure.legend([*handles.values()], [*handles], loc="outside lower center", ncols=2, fontsize=8.5)


def _draw_pair(axes: Axes, log: PopulationLog, across: int, up: int, scale: Normalize) -> None:
    x, y = log.objectives[:, across], log.objectives[:, up]
    many, shown, last = len(x) > RASTER_ABOVE, sample(len(x)), log.front
    axes.scatter(
        x[shown], y[shown], c=log.steps[shown], cmap=shades(), norm=scale, s=4 if many else 12,
        linewidths=0, alpha=0.6, rasterized=many, zorder=1,
    )  # fmt: skip
    if len(log.names) == 2:
        for part in EARLIER_FRONTS:
            count = int(np.searchsorted(log.steps, part * log.steps[-1], side="right"))
            if count:
                shade = shades()(scale(log.steps[count - 1]))
                _draw_front_edge(axes, x, y, log.front_of(count), color=shade, linewidth=1.2, zorder=2)
        _draw_front_edge(axes, x, y, last, color=INK, linewidth=1.6, zorder=4)
    few = last[thinned(len(last), 250)]
    axes.plot(x[few], y[few], "o", color=COLOURS[1], markersize=2.2, mew=0, zorder=5)
    axes.set(xlim=robust_limits(x), ylim=robust_limits(y))
    readable_axis(axes.xaxis, 5)
    readable_axis(axes.yaxis, 5)
    axes.grid(axis="both")


def _draw_front_edge(axes: Axes, x: Floats, y: Floats, rows: NDArray[np.intp], **style: Any) -> None:
    """Draw the edge of the region that the rows dominate: below and left of each, since both are maximised."""
    axes.step(x[rows], y[rows], where="pre", **style)


def _parallel(log: PopulationLog) -> Figure:
    """Draw a line for each individual of the final front; each vertical axis spans the range of the front."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    f = log.objectives[log.front]
    low, span = f.min(axis=0), np.where(np.ptp(f, axis=0) > 0, np.ptp(f, axis=0), 1.0)
    heights = (f - low) / span
    figure = Figure(figsize=(max(6.2, 1.1 * f.shape[1] + 1), 4.0))
    axes = figure.subplots(gridspec_kw={"left": 0.09, "right": 0.95, "top": 0.88, "bottom": 0.1})
    lines = [np.column_stack([np.arange(f.shape[1]), row]) for row in heights]
    shown = LineCollection(lines, cmap=shades(), linewidths=0.9, alpha=0.6, rasterized=len(f) > RASTER_ABOVE)
    shown.set_array(heights[:, 0])
    axes.add_collection(shown)
    axes.set_xticks(range(f.shape[1]), log.names)
    for k, (least, most) in enumerate(zip(low, low + span, strict=True)):
        axes.text(k, -0.02, format_number(least), ha="center", va="top", fontsize=8.5, color=MUTED)
        axes.text(k, 1.02, format_number(most), ha="center", va="bottom", fontsize=8.5, color=MUTED)
    axes.set(xlim=(-0.3, f.shape[1] - 0.7), ylim=(-0.1, 1.1), yticks=[])
    axes.set_title(f"Pareto front: {len(f)} individuals, coloured by {log.names[0]}")
    axes.grid(axis="x")
    return figure


# ------------------------------------------------------------------ shared by the figures of populations


def shades() -> ListedColormap:
    """Return a colour map from dark to bright that is visible on white and on black."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis"](np.linspace(*SHADES, 256)))


def sample(count: int, most: int = MAX_DOTS) -> NDArray[np.intp]:
    """Return about ``most`` of ``count`` rows, evenly spread by golden-ratio sampling, which no period aligns with."""
    golden = (np.arange(count) * 0.6180339887498949) % 1.0
    return np.flatnonzero(golden < most / count)


def robust_range(values: Floats) -> tuple[float, float]:
    """Return the range of the finite values, without the share `OUTLIERS` of the lowest if they are far away."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, near, high = float(known.min()), float(np.quantile(known, OUTLIERS)), float(known.max())
    return (near if high - low > 1.5 * (high - near) else low), high


def robust_limits(values: Floats) -> tuple[float, float]:
    """Return axis limits: `robust_range` with a margin of 5 %."""
    low, high = robust_range(values)
    room = 0.05 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def colour_bar(figure: Figure, axes: Sequence[Axes], scale: Normalize, title: str) -> None:
    """Draw a colour bar to the right of the axes."""
    from matplotlib.cm import ScalarMappable

    shown = figure.colorbar(ScalarMappable(scale, shades()), ax=axes, pad=0.015, aspect=28, fraction=0.03)
    shown.outline.set(visible=False)
    shown.ax.tick_params(length=0, labelsize=8.5)
    readable_axis(shown.ax.yaxis, 5)
    if len(title) > MAX_BAR_TITLE:
        shown.set_label(title, fontsize=8.5, color=MUTED, labelpad=2)
    else:
        shown.ax.set_title(title, fontsize=8.5, fontweight="normal", color=MUTED, loc="left")
