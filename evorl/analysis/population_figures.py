"""Pictures of one population: fitness and genes over steps, the family tree.

Fronts are in `evorl.analysis.fronts`, grids of behaviours in `evorl.analysis.map_elites_figure`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evorl.analysis.figures import COLOURS, INK, MUTED, PAPER, decades, readable_axis, style
from evorl.analysis.fronts import DOTS, FEW, bar, fronts, limits, sample, sane, shades
from evorl.analysis.groups import show
from evorl.analysis.lineage import Family, Life, family
from evorl.analysis.map_elites_figure import archive
from evorl.analysis.population import Census
from evorl.analysis.runs import is_number
from evorl.analysis.statistics import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

STEPS = "environment steps"
GENES = 12
"""Genes that are drawn, the first ones."""


def portraits(census: Census) -> Iterator[tuple[str, str, Figure]]:
    """File name, words and figure of each picture there is of a population."""
    with style():
        yield "fitness", f"{' and '.join(census.names)} of every individual by environment steps", _fitness(census)
        if len(census.names) > 1 and len(census.front):
            yield "front", f"Pareto front of {', '.join(census.names)}, and its history", fronts(census)
        if (grid := archive(census)) is not None:
            yield "archive", f"the best {census.names[0]} of every cell of the archive", grid
        if census.genes:
            yield "genes", f"genes by environment steps, coloured by {census.worth}", _genes(census)
        if (found := family(census)) is not None:
            yield "family", f"family tree by environment steps, coloured by {census.worth}", _tree(census, found)


# ------------------------------------------------------------------ fitness


def _fitness(census: Census) -> Figure:
    """Every individual, the mean of the last generation's number of them, and the best so far: of each objective."""
    from matplotlib.figure import Figure

    several = len(census.names) > 1
    columns = min(len(census.names), 3)
    lines = -(-len(census.names) // columns)
    figure = Figure(figsize=(3.7 * columns + 0.4, 2.8 * lines) if several else (5.2, 3.3), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, k in zip(grid, range(len(census.names)), strict=False):
        values = census.objectives[:, k] if several else census.fitness
        _over_time(axes, census, np.where(np.isfinite(values), values, np.nan))
        axes.set_title(census.names[k] if several else census.worth)
    for axes in grid[len(census.names) :]:
        axes.set_axis_off()
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8.5)
    return figure


def _over_time(axes: Axes, census: Census, values: Floats) -> None:
    steps, few = census.steps, len(values) <= FEW
    dots: dict[str, Any] = {"markersize": 4.0, "alpha": 0.6} if few else {"markersize": 2.0, "alpha": 0.4}
    shown = sample(len(values))
    axes.plot(
        steps[shown],
        values[shown],
        "o",
        color=COLOURS[5],
        mew=0,
        rasterized=not few,
        zorder=1,
        label="individuals",
        **dots,
    )
    newest = np.flatnonzero(np.r_[steps[1:] > steps[:-1], True])  # of those that were told at once
    at = newest[np.unique(np.linspace(0, len(newest) - 1, 400).astype(int))]
    mean, best = census.mean(values)[at], np.fmax.accumulate(values)[at]
    axes.plot(steps[at], mean, color=COLOURS[0], linewidth=1.4, zorder=3, label=f"mean of the last {census.size}")
    axes.plot(steps[at], best, color=COLOURS[1], linewidth=1.5, zorder=3, drawstyle="steps-post", label="best so far")
    axes.set_xlabel(STEPS)
    axes.set_ylim(limits(values))
    readable_axis(axes.xaxis, 5)
    readable_axis(axes.yaxis, 5)


# ------------------------------------------------------------------ genes


def _genes(census: Census) -> Figure:
    from matplotlib.figure import Figure

    names = list(census.genes)[:GENES]
    columns = min(len(names), 4 if len(names) > 6 else 3)
    lines = -(-len(names) // columns)
    wide = 5.2 if columns == 1 else 3.2 * columns + 0.5
    figure = Figure(figsize=(wide, 2.7 * lines if lines > 1 else 3.2), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True).ravel()
    scale, line = _scale(census), _line_of_best(census)
    for axes, name in zip(grid, names, strict=False):
        _gene(axes, census, name, scale, line)
    for axes in grid[max(0, len(names) - columns) : len(names)]:  # the lowest of each column
        axes.set_xlabel(STEPS)
        axes.tick_params(labelbottom=True)  # which a shared axis leaves to the last line alone
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    bar(figure, list(grid[: len(names)]), scale, census.worth)
    if len(census.genes) > GENES:
        figure.suptitle(f"The first {GENES} of {len(census.genes)} genes", x=0.01, ha="left", fontsize=9.5, color=MUTED)
    return figure


def _gene(axes: Axes, census: Census, name: str, scale: Normalize, line: Sequence[int]) -> None:
    """Every individual's value, the fit on top of the others, and the line of descent of the best."""
    x, ticks = _numbers(census.genes[name])
    shown = sample(len(x), 4 * DOTS // max(4, min(len(census.genes), GENES)))
    order = shown[np.argsort(np.nan_to_num(census.fitness[shown], nan=-np.inf), kind="stable")]
    many = len(x) > FEW
    axes.scatter(
        census.steps[order], x[order], c=np.nan_to_num(census.fitness[order], nan=scale.vmin or 0.0), cmap=shades(),
        norm=scale, s=3 if many else 16, linewidths=0, alpha=0.8, rasterized=many, zorder=2,
    )  # fmt: skip
    if len(line) > 1:
        axes.plot(census.steps[line], x[line], color=INK, linewidth=0.9, alpha=0.8, zorder=3)
    logarithmic = bool(census.run.config.get(f"ec.genes.{name}.log"))
    axes.set_title(name)
    readable_axis(axes.xaxis, 4)
    if logarithmic:
        decades(axes, x)
    else:
        readable_axis(axes.yaxis, 5)
    if ticks:
        axes.set_yticks(range(len(ticks)), ticks)


def _numbers(values: Sequence[Any]) -> tuple[Floats, list[str]]:
    """The values of a gene as numbers; those of choices are their places among them, whose names come second."""
    known = [value for value in values if value is not None]
    if all(is_number(value) for value in known):
        return np.array([np.nan if value is None else value for value in values], np.float64), []
    names = sorted({show(value) for value in known})
    return np.array([np.nan if value is None else names.index(show(value)) for value in values], np.float64), names


def _line_of_best(census: Census) -> list[int]:
    """Rows of the best individual and its first parents, the oldest first."""
    found = family(census)
    if found is None or not np.isfinite(census.fitness).any():
        return []
    return [life.row for life in reversed(found.of(int(np.nanargmax(census.fitness))))]


def _scale(census: Census) -> Normalize:
    from matplotlib.colors import Normalize

    low, high = sane(census.fitness)
    return Normalize(low, high if high > low else low + 1.0, clip=True)


# ------------------------------------------------------------------ family


def _tree(census: Census, found: Family) -> Figure:
    """Lines coloured by fitness; that of the best one's forebears lies on a wide one."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, min(max(2.2, 0.9 + (0.22 if found.members else 0.07) * found.lines), 12.0)))
    axes = figure.subplots(gridspec_kw={"left": 0.06, "right": 0.95})
    scale, at = _scale(census), {life.row: life for life in found.lives}
    best = found.of(int(np.nanargmax(census.fitness))) if np.isfinite(census.fitness).any() else []
    many = len(found.lives) > FEW
    halo = LineCollection([_path(life, at, found) for life in best], color=COLOURS[4], linewidths=5, alpha=0.45)
    axes.add_collection(halo)
    order = sorted(found.lives, key=lambda life: np.nan_to_num(census.fitness[life.row], nan=-np.inf))
    lines = LineCollection([_path(life, at, found) for life in order], cmap=shades(), norm=scale, rasterized=many)
    lines.set(array=[census.fitness[life.row] for life in order], linewidths=1.8 if found.members else 1.0, zorder=2)
    axes.add_collection(lines)
    if found.members:
        _events(axes, census, found)
    axes.set(xlim=(0, census.steps[-1] * 1.01), ylim=(found.lines - 0.4, -0.6), title=_heading(found))
    axes.set_yticks(range(found.lines) if found.members and found.lines <= 40 else [])
    axes.grid(False)
    readable_axis(axes.xaxis, 8)
    axes.set_xlabel(STEPS)
    bar(figure, [axes], scale, census.worth)
    return figure


def _heading(found: Family) -> str:
    if found.members:
        return "Members: an arrow where one's weights take another's place"
    return "Descent of the newest individuals, by their first parents"


def _path(life: Life, at: Mapping[int, Life], found: Family) -> list[tuple[float, float]]:
    """From where it began to where it ended, and where that is on another line, down or up from its parent's first."""
    parent = None if life.parent is None else at.get(life.parent)
    start = [] if parent is None or found.members else [(life.began, parent.line)]
    return [*start, (life.began, life.line), (life.ended, life.line)]


def _events(axes: Axes, census: Census, found: Family) -> None:
    """From where another's weights were done to where a member takes them over, and where one failed."""
    from matplotlib.patches import FancyArrowPatch

    at = {life.row: life for life in found.lives}
    for life in found.lives:
        parent = None if life.parent is None else at.get(life.parent)
        if parent is not None and parent.line != life.line:
            axes.add_patch(FancyArrowPatch(
                (parent.ended, parent.line), (life.began, life.line), arrowstyle="-|>", mutation_scale=7, color=INK,
                linewidth=0.8, alpha=0.75, shrinkA=0, shrinkB=1, connectionstyle="arc3,rad=0.12", zorder=4,
            ))  # fmt: skip
    ends = np.array([[life.ended, life.line] for life in found.lives])
    failed = np.array([not np.isfinite(census.fitness[life.row]) for life in found.lives])
    axes.plot(*ends[~failed].T, "o", color=PAPER, markeredgecolor=INK, markeredgewidth=0.7, markersize=3, zorder=5)
    axes.plot(*ends[failed].T, "x", color=INK, markersize=5, zorder=5)
