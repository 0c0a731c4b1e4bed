"""Figures of one population: fitness and genes over steps, and the lineage.

Pareto fronts are in `evorl.analysis.fronts`, MAP-Elites archives in `evorl.analysis.map_elites_figure`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evorl.analysis.axes import log_axis, readable_axis, several_magnitudes
from evorl.analysis.figures import COLOURS, INK, MUTED, PAPER, style
from evorl.analysis.fronts import (
    MAX_DOTS,
    RASTER_ABOVE,
    STEPS,
    colour_bar,
    front_figure,
    robust_limits,
    robust_range,
    sample,
    shades,
)
from evorl.analysis.groups import format_value
from evorl.analysis.lineage import Lifespan, Lineage, find_lineage
from evorl.analysis.map_elites_figure import archive_figure
from evorl.analysis.population import PopulationLog, read_population_log
from evorl.analysis.runs import is_number, read_run
from evorl.analysis.statistics import Floats
from evorl.util import run_directory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

GENES = 12
"""Number of genes drawn: the first ones."""


def population_figures(log: PopulationLog) -> Iterator[tuple[str, str, Figure]]:
    """Yield file name, description and figure of each picture of a population."""
    with style():
        yield "fitness", f"{' and '.join(log.names)} of every individual by environment steps", _fitness_figure(log)
        if len(log.names) > 1 and len(log.front):
            yield "front", f"Pareto front of {', '.join(log.names)}, and its history", front_figure(log)
        if (grid := archive_figure(log)) is not None:
            yield "archive", f"the best {log.names[0]} of every cell of the archive", grid
        if log.genes and log.is_search:
            yield "keys", f"{log.ranked_by} of every job by each searched key", keys_figure(log)
        if log.genes:
            yield "genes", f"genes by environment steps, coloured by {log.ranked_by}", _genes_figure(log)
        if (lineage := lineage_figure(log)) is not None:
            yield "family", f"lineage by environment steps, coloured by {log.ranked_by}", lineage


# ------------------------------------------------------------------ fitness


def _fitness_figure(log: PopulationLog) -> Figure:
    """Draw all individuals, the mean of the last generation and the best so far, for each objective."""
    from matplotlib.figure import Figure

    several = len(log.names) > 1
    columns = min(len(log.names), 3)
    lines = -(-len(log.names) // columns)
    figure = Figure(figsize=(3.7 * columns + 0.4, 2.8 * lines) if several else (5.2, 3.3), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, k in zip(grid, range(len(log.names)), strict=False):
        values = log.objectives[:, k] if several else log.fitness
        _draw_over_time(axes, log, np.where(np.isfinite(values), values, np.nan))
        axes.set_title(log.names[k] if several else log.ranked_by)
    for axes in grid[len(log.names) :]:
        axes.set_axis_off()
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8.5)
    return figure


def _draw_over_time(axes: Axes, log: PopulationLog, values: Floats) -> None:
    steps, few = log.steps, len(values) <= RASTER_ABOVE
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
    newest = np.flatnonzero(np.r_[steps[1:] > steps[:-1], True])  # the last individual of each batch
    at = newest[np.unique(np.linspace(0, len(newest) - 1, 400).astype(int))]
    mean, best = log.generation_mean(values)[at], np.fmax.accumulate(values)[at]
    axes.plot(steps[at], mean, color=COLOURS[0], linewidth=1.4, zorder=3, label=f"mean of the last {log.size}")
    axes.plot(steps[at], best, color=COLOURS[1], linewidth=1.5, zorder=3, drawstyle="steps-post", label="best so far")
    axes.set_xlabel(STEPS)
    axes.set_ylim(robust_limits(values))
    readable_axis(axes.xaxis, 5)
    readable_axis(axes.yaxis, 5)
    several_magnitudes(axes, values)


# ------------------------------------------------------------------ genes


def _genes_figure(log: PopulationLog) -> Figure:
    from matplotlib.figure import Figure

    names = list(log.genes)[:GENES]
    columns = min(len(names), 4 if len(names) > 6 else 3)
    lines = -(-len(names) // columns)
    wide = 5.2 if columns == 1 else 3.2 * columns + 0.5
    figure = Figure(figsize=(wide, 2.7 * lines if lines > 1 else 3.2), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True).ravel()
    scale, line = _fitness_scale(log), _best_descent(log)
    for axes, name in zip(grid, names, strict=False):
        _draw_gene(axes, log, name, scale, line)
    for axes in grid[max(0, len(names) - columns) : len(names)]:  # the last panel of each column
        axes.set_xlabel(STEPS)
        axes.tick_params(labelbottom=True)  # a shared axis labels only the last row
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    colour_bar(figure, list(grid[: len(names)]), scale, log.ranked_by)
    if len(line) > 1:
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", fontsize=8.5)
    if len(log.genes) > GENES:
        figure.suptitle(f"The first {GENES} of {len(log.genes)} genes", x=0.01, ha="left", fontsize=9.5, color=MUTED)
    return figure


def _draw_gene(axes: Axes, log: PopulationLog, name: str, scale: Normalize, line: Sequence[int]) -> None:
    """Draw the value of every individual, the fittest on top, and the line of descent of the best."""
    x, ticks = _numbers(log.genes[name])
    shown = sample(len(x), 4 * MAX_DOTS // max(4, min(len(log.genes), GENES)))
    order = shown[np.argsort(np.nan_to_num(log.fitness[shown], nan=-np.inf), kind="stable")]
    many = len(x) > RASTER_ABOVE
    axes.scatter(
        log.steps[order], x[order], c=np.nan_to_num(log.fitness[order], nan=scale.vmin or 0.0), cmap=shades(),
        norm=scale, s=3 if many else 16, linewidths=0, alpha=0.8, rasterized=many, zorder=2,
    )  # fmt: skip
    if len(line) > 1:  # a child plays with its gene from its parent's end to its own
        axes.plot(
            log.steps[line], x[line], color=INK, linewidth=0.9, alpha=0.8, zorder=3, drawstyle="steps-pre",
            label="descent of the best",
        )  # fmt: skip
    logarithmic = bool(log.run.config.get(f"ec.genes.{name}.log"))
    axes.set_title(name)
    readable_axis(axes.xaxis, 4)
    if logarithmic:
        log_axis(axes, x, axes.yaxis)
    else:
        readable_axis(axes.yaxis, 5)
    if ticks:
        axes.set_yticks(range(len(ticks)), ticks)


# ------------------------------------------------------------------ fitness by key


def keys_figure(log: PopulationLog) -> Figure:
    """Draw a panel for each searched key: the fitness of every job over its value, the best one marked.

    Of a job that was stopped early and went on, a line leads from its earlier results to the newest."""
    from matplotlib.figure import Figure

    names = list(log.genes)[:GENES]
    columns = min(len(names), 3)
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(5.2 if columns == 1 else 3.4 * columns, 2.8 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    newest, known = log.newest_of_jobs, np.isfinite(log.fitness)
    fitness, failed, older = np.where(known, log.fitness, np.nan), newest & ~known, known & ~newest
    best = log.best
    for number, (axes, name) in enumerate(zip(grid, names, strict=False)):
        x, ticks = _numbers(log.genes[name])
        for rows in log.rows_of_promoted_jobs:
            axes.plot(x[rows], fitness[rows], "-", color=MUTED, linewidth=0.7, zorder=1)
        shown = newest & known
        axes.plot(x[shown], fitness[shown], "o", color=COLOURS[0], markersize=4.5, mew=0, alpha=0.7, label="job")
        if older.any():
            axes.plot(x[older], fitness[older], "o", color=MUTED, markersize=3, mew=0, label="before it went on")
        if failed.any():
            below = axes.get_xaxis_transform()
            axes.plot(x[failed], np.full(failed.sum(), 0.03), "x", color=MUTED, transform=below, label="failed")
        if best is not None:
            axes.plot(x[best], fitness[best], "D", color=COLOURS[1], markersize=6, mew=0, zorder=3, label="best")
        axes.set_xlabel(name)
        if number % columns == 0:
            axes.set_ylabel(log.ranked_by)
        readable_axis(axes.yaxis, 5)
        several_magnitudes(axes, fitness)
        if ticks:
            axes.set_xticks(range(len(ticks)), ticks)
            axes.set_xlim(-0.5, len(ticks) - 0.5)
        elif log.run.config.get(f"ec.genes.{name}.log"):
            log_axis(axes, x, axes.xaxis)
        else:
            readable_axis(axes.xaxis, 4)
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8.5)
    return figure


def _numbers(values: Sequence[Any]) -> tuple[Floats, list[str]]:
    """Return the values of a gene as numbers, and the names of the choices that the numbers stand for."""
    known = [value for value in values if value is not None]
    if all(is_number(value) for value in known):
        return np.array([np.nan if value is None else value for value in values], np.float64), []
    names = sorted({format_value(value) for value in known})
    return np.array(
        [np.nan if value is None else names.index(format_value(value)) for value in values], np.float64
    ), names


def _best_descent(log: PopulationLog) -> list[int]:
    """Return the rows of the best individual and its first parents, oldest first."""
    lineage = find_lineage(log)
    if lineage is None or log.best is None:
        return []
    return [life.row for life in reversed(lineage.descent(log.best))]


def _fitness_scale(log: PopulationLog) -> Normalize:
    from matplotlib.colors import Normalize

    low, high = robust_range(log.fitness)
    return Normalize(low, high if high > low else low + 1.0, clip=True)


# ------------------------------------------------------------------ lineage


def lineage_figures(directories: Iterable[str]) -> dict[str, Figure]:
    """Draw the lineages of the runs that are populations, by run directory."""
    figures = {}
    for directory in map(Path, directories):
        if not run_directory.exists(directory, "population.jsonl"):
            continue
        log = read_population_log(read_run(directory))
        with style():
            if log is not None and (figure := lineage_figure(log)) is not None:
                figures[str(directory)] = figure
    return figures


def lineage_figure(log: PopulationLog) -> Figure | None:
    """Draw who descends from whom, coloured by fitness, and the best one's descent as a wide line; None if no
    individual has a parent in the log."""
    lineage = find_lineage(log)
    return None if lineage is None else _lineage_figure(log, lineage)


def _lineage_figure(log: PopulationLog, lineage: Lineage) -> Figure:
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, min(max(2.2, 0.9 + (0.22 if lineage.members else 0.07) * lineage.lines), 12.0)))
    axes = figure.subplots(gridspec_kw={"left": 0.06, "right": 0.95})
    scale, at = _fitness_scale(log), {life.row: life for life in lineage.lifespans}
    best = [] if log.best is None else lineage.descent(log.best)
    many = len(lineage.lifespans) > RASTER_ABOVE
    halo = LineCollection([_path(life, at, lineage) for life in best], color=COLOURS[4], linewidths=5, alpha=0.45)
    axes.add_collection(halo)
    order = sorted(lineage.lifespans, key=lambda life: np.nan_to_num(log.fitness[life.row], nan=-np.inf))
    lines = LineCollection([_path(life, at, lineage) for life in order], cmap=shades(), norm=scale, rasterized=many)
    lines.set(array=[log.fitness[life.row] for life in order], linewidths=1.8 if lineage.members else 1.0, zorder=2)
    axes.add_collection(lines)
    if lineage.members:
        _draw_events(axes, log, lineage)
    axes.set(xlim=(0, log.steps[-1] * 1.01), ylim=(lineage.lines - 0.4, -0.6), title=_lineage_title(lineage))
    axes.set_yticks(range(lineage.lines) if lineage.members and lineage.lines <= 40 else [])
    axes.grid(False)
    readable_axis(axes.xaxis, 8)
    axes.set_xlabel(STEPS)
    colour_bar(figure, [axes], scale, log.ranked_by)
    return figure


def _lineage_title(lineage: Lineage) -> str:
    if lineage.members:
        return "Lineage of the members (arrows: copied weights)"
    return "Lineage of the newest individuals (first parents)"


def _path(life: Lifespan, at: Mapping[int, Lifespan], lineage: Lineage) -> list[tuple[float, float]]:
    """Return the path from start to end, preceded by a vertical segment from the parent's line if it differs."""
    parent = None if life.parent is None else at.get(life.parent)
    start = [] if parent is None or lineage.members else [(life.began, parent.line)]
    return [*start, (life.began, life.line), (life.ended, life.line)]


def _draw_events(axes: Axes, log: PopulationLog, lineage: Lineage) -> None:
    """Draw an arrow for each copy of weights, a dot for each end and a cross for each failure."""
    from matplotlib.patches import FancyArrowPatch

    at = {life.row: life for life in lineage.lifespans}
    for life in lineage.lifespans:
        parent = None if life.parent is None else at.get(life.parent)
        if parent is not None and parent.line != life.line:
            axes.add_patch(FancyArrowPatch(
                (parent.ended, parent.line), (life.began, life.line), arrowstyle="-|>", mutation_scale=7, color=INK,
                linewidth=0.8, alpha=0.75, shrinkA=0, shrinkB=1, connectionstyle="arc3,rad=0.12", zorder=4,
            ))  # fmt: skip
    ends = np.array([[life.ended, life.line] for life in lineage.lifespans])
    failed = np.array([not np.isfinite(log.fitness[life.row]) for life in lineage.lifespans])
    axes.plot(*ends[~failed].T, "o", color=PAPER, markeredgecolor=INK, markeredgewidth=0.7, markersize=3, zorder=5)
    axes.plot(*ends[failed].T, "x", color=INK, markersize=5, zorder=5)
