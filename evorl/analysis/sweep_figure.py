"""Figure of a sweep: fitness as a heat map over two varied keys, or parallel coordinates over more."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from evorl.analysis.figures import INK, MUTED, PAPER, style
from evorl.analysis.groups import Group, format_value
from evorl.analysis.runs import is_number
from evorl.analysis.statistics import thinned
from evorl.analysis.sweeps import seeks_lowest
from evorl.analysis.tables import summary_metrics
from evorl.util.numbers import format_number, short_texts
from evorl.util.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORDINAL = 9
"""Most values of a key that are placed at equal distances, each with its label."""
MARKS = 5
"""Labels of an axis with more values."""
MAX_SCALES = 8
"""Most keys that are drawn; those that distinguish most groups are chosen."""
SPARSE = 0.25
"""Least share of occupied cells for a heat map."""
SHADES = (0.15, 0.88)
"""Part of the colour map that is visible on white and on black."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepFitness:
    """The mean fitness of G groups of runs, and the values of K >= 2 keys that distinguish the groups."""

    keys: Sequence[str]
    labels: Sequence[str]
    """[G]"""
    values: Sequence[Sequence[Any]]
    """[G][K]"""
    fitness: Sequence[float]
    """[G]"""
    lowest: bool = False
    """Whether the lowest fitness is the best."""

    @property
    def order(self) -> list[int]:
        """The groups, the best one last."""
        return sorted(range(len(self.fitness)), key=self.fitness.__getitem__, reverse=self.lowest)

    @property
    def title(self) -> str:
        return f"fitness by {', '.join(self.keys[:-1])} and {self.keys[-1]}"

    @property
    def is_map(self) -> bool:
        """Whether there are two keys and enough occupied cells for a heat map."""
        if len(self.keys) != 2:
            return False
        columns, rows = (len(_places(self, k)) for k in range(2))
        return max(columns, rows) <= 24 and len(self.fitness) >= SPARSE * columns * rows


def sweep_fitness(groups: Sequence[Group]) -> SweepFitness | None:
    """Return the fitness of the groups; None with fewer than three groups or two keys."""
    scored = [(group, [m["fitness"] for m in map(summary_metrics, group.runs) if "fitness" in m]) for group in groups]
    known = [(group, values) for group, values in scored if values]
    columns = {key: {repr(group.values[key]) for group, _ in known} for key in groups[0].values}
    keys = [key for key, values in columns.items() if len(values) > 1][:MAX_SCALES]
    if len(keys) < 2 or len(known) < 3:
        return None
    return SweepFitness(
        keys=keys,
        labels=[group.label for group, _ in known],
        values=[[group.values[key] for key in keys] for group, _ in known],
        fitness=[float(np.mean(values)) for _, values in known],
        lowest=seeks_lowest(run for group in groups for run in group.runs),
    )


def sweep_figure(shown: SweepFitness) -> Figure:
    """Draw a heat map or parallel coordinates."""
    with style():
        return _heat_map(shown) if shown.is_map else _parallel(shown)


def _places(shown: SweepFitness, k: int) -> dict[str, float]:
    """The values of a key in their order, as they are shown, and the number of each; ranks unless all are numbers."""
    column = {format_value(row[k]): row[k] for row in shown.values}
    names = sorted(column, key=lambda name: (not is_number(column[name]), _size(column[name]), _natural(name)))
    numeric = all(is_number(value) for value in column.values())
    return {name: float(column[name]) if numeric else float(rank) for rank, name in enumerate(names)}


def _size(value: Any) -> float:
    return float(value) if is_number(value) else 0.0


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(word), "") if word.isdecimal() else (0, word) for word in re.split(r"(\d+)", name)]


def shades(fitness: Sequence[float]) -> list[str]:
    """Return a colour for each fitness, from dark to light."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    low, high = min(fitness), max(fitness)
    parts = [(height - low) / (high - low) if high > low else 1.0 for height in fitness]
    return [to_hex(colormaps["viridis"](SHADES[0] + part * (SHADES[1] - SHADES[0]))) for part in parts]


# ------------------------------------------------------------------ two keys


def _heat_map(shown: SweepFitness) -> Figure:
    from matplotlib.figure import Figure

    across = 0 if len(_places(shown, 0)) >= len(_places(shown, 1)) else 1
    columns, rows = list(_places(shown, across)), list(_places(shown, 1 - across))
    left = 0.45 + 0.075 * max(map(len, short_texts(rows)))
    across_inches, longest = max(0.72 * len(columns), 2.6), max(map(len, short_texts(columns)))
    slanted = 0.085 * longest > across_inches / len(columns)
    below = 0.55 + 0.06 * longest * slanted
    width, height = left + 0.15 + across_inches, 0.45 + below + max(0.42 * len(rows), 0.9)
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(
        gridspec_kw={
            "left": left / width,
            "right": 1 - 0.15 / width,
            "bottom": below / height,
            "top": 1 - 0.42 / height,
        }
    )
    for row, tall, shade in zip(shown.values, shown.fitness, shades(shown.fitness), strict=True):
        _cell(axes, columns.index(format_value(row[across])), rows.index(format_value(row[1 - across])), tall, shade)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-0.5, len(rows) - 0.5))
    axes.set_xticks(range(len(columns)), short_texts(columns), rotation=45 if slanted else 0)
    axes.set_yticks(range(len(rows)), short_texts(rows))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    axes.set(xlabel=shown.keys[across], ylabel=shown.keys[1 - across], title="fitness")
    return figure


def _cell(axes: Axes, column: int, row: int, tall: float, shade: str) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor=shade, linewidth=0))
    dark = np.dot(to_rgb(shade), (0.299, 0.587, 0.114)) < 0.5
    axes.text(
        column, row, _short_number(tall), ha="center", va="center", fontsize=8.5, color="#ffffff" if dark else "#101010"
    )


def _short_number(value: float) -> str:
    return format_number(value).replace("-", "−")


# ------------------------------------------------------------------ more keys


def _parallel(shown: SweepFitness) -> Figure:
    """Draw a vertical axis per key and one for the fitness, and a line per group, the best one wide and on top."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(5.6, 1.35 * (len(shown.keys) + 1)), 4.0))
    axes = figure.subplots(gridspec_kw={"left": 0.09, "right": 0.9, "bottom": 0.03, "top": 0.85})
    axes.set_axis_off()
    scales = parallel_scales(shown)
    for k, scale in enumerate(scales):
        _draw_scale(axes, k, scale.name, scale.ticks, last=k == len(shown.keys))
    fitness = np.array([scale.at for scale in scales])
    colours = shades(shown.fitness)
    for group in shown.order:
        best = group == shown.order[-1]
        wide: dict[str, Any] = {"linewidth": 3.0, "alpha": 1.0} if best else {"linewidth": 1.3, "alpha": 0.75}
        axes.plot(*_curve(fitness[:, group]), color=colours[group], solid_joinstyle="round", zorder=2, **wide)
    axes.set(xlim=(-0.1, len(shown.keys) + 0.1), ylim=(-0.13, 1.13))
    return figure


def _curve(fitness: Any) -> tuple[Any, Any]:
    """Through the fitness [K], level where it crosses an upright, so that lines of one place can be followed."""
    part = np.linspace(0, 1, 25)
    bend = part * part * (3 - 2 * part)
    x = np.concatenate([k + part for k in range(len(fitness) - 1)])
    y = np.concatenate([a + (b - a) * bend for a, b in pairwise(fitness)])
    return x, y


@dataclass(frozen=True, kw_only=True, eq=False)
class Scale:
    """An axis of parallel coordinates."""

    name: str
    at: Sequence[float]
    """Where each group crosses it, in [0, 1]."""
    ticks: Mapping[str, float]


def parallel_scales(shown: SweepFitness) -> list[Scale]:
    """Return an axis for each key, and one for the fitness."""
    return [*(_key_scale(shown, k) for k in range(len(shown.keys))), _fitness_scale(shown)]


def parallel_json(shown: SweepFitness) -> bytes:
    """Return the parallel coordinates as JSON, for the page to draw."""
    scales = parallel_scales(shown)
    axes = [
        {"name": printable(scale.name), "ticks": [[text, round(place, 4)] for text, place in scale.ticks.items()]}
        for scale in scales
    ]
    lines = [
        {"label": label, "fitness": tall, "shade": shade, "at": [round(float(scale.at[i]), 4) for scale in scales]}
        for i, (label, tall, shade) in enumerate(zip(shown.labels, shown.fitness, shades(shown.fitness), strict=True))
    ]
    return msgspec.json.encode({"axes": axes, "lines": lines, "best": shown.fitness[shown.order[-1]]})


def _key_scale(shown: SweepFitness, k: int) -> Scale:
    places = _places(shown, k)
    if len(places) > ORDINAL and all(is_number(row[k]) for row in shown.values):
        (at, ticks), fan = _numeric_scale(places), 0.0
    else:
        at = {name: rank / max(len(places) - 1, 1) for rank, name in enumerate(places)}
        labels = list(zip(short_texts(list(at)), at.values(), strict=True))
        marked = range(len(at)) if len(at) <= ORDINAL else thinned(len(at), MARKS)
        ticks, fan = dict(labels[rank] for rank in marked), 0.3 / len(places)
    crossed = [
        at[format_value(row[k])] + fan * aside for row, aside in zip(shown.values, _offsets(shown, k), strict=True)
    ]
    return Scale(name=shown.keys[k], at=crossed, ticks=ticks)


def _offsets(shown: SweepFitness, k: int) -> list[float]:
    """Return offsets in [-1/2, 1/2] that separate groups with the same value, the fitter above."""
    asides = [0.0] * len(shown.fitness)
    for name in _places(shown, k):
        places = [i for i, row in enumerate(shown.values) if format_value(row[k]) == name]
        for rank, i in enumerate(sorted(places, key=lambda i: shown.fitness[i])):
            asides[i] = (rank + 0.5) / len(places) - 0.5
    return asides


def _numeric_scale(places: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Return positions on a scale, logarithmic if the values span two decades, and the tick marks."""
    low, high = min(places.values()), max(places.values())
    logarithmic = low > 0 and high / low >= 100
    scale = np.log10 if logarithmic else np.asarray
    at = {name: float((scale(x) - scale(low)) / (scale(high) - scale(low))) for name, x in places.items()}
    marks = np.geomspace(low, high, MARKS) if logarithmic else np.linspace(low, high, MARKS)
    return at, _ticks(marks.tolist(), lambda x: float((scale(x) - scale(low)) / (scale(high) - scale(low))))


def _ticks(marks: Sequence[float], place: Callable[[float], float]) -> dict[str, float]:
    """Label marks with as few digits as tell them apart and move none far, each where the number of its label lies."""
    for digits in range(2, 17):
        rounded = [float(f"{mark:.{digits}g}") for mark in marks]
        moved = max(abs(place(x) - place(mark)) for x, mark in zip(rounded, marks, strict=True))
        if len({*rounded}) == len({*marks}) and moved < 0.03:
            break
    return {_short_number(x) if digits <= 4 else f"{x:.{digits}g}": place(x) for x in rounded}


def _fitness_scale(shown: SweepFitness) -> Scale:
    low, high = min(shown.fitness), max(shown.fitness)
    room = (high - low) or 1.0
    marks = np.linspace(low, high, MARKS).tolist() if high > low else [low]
    ticks = _ticks(marks, lambda x: (x - low) / room)
    return Scale(name="fitness", at=[(height - low) / room for height in shown.fitness], ticks=ticks)


def _draw_scale(axes: Axes, at: int, name: str, ticks: Mapping[str, float], last: bool) -> None:
    """A vertical scale at x = ``at``: its name above, its ticks to the left, those of the last to the right."""
    from matplotlib.patheffects import withStroke

    axes.plot([at, at], [-0.12, 1.12], color=MUTED, linewidth=0.9, zorder=1)
    axes.text(at, 1.17 + 0.08 * (at % 2), name, ha="center", fontsize=9, fontweight="bold")
    for text, height in ticks.items():
        axes.text(
            at + (0.05 if last else -0.05), height, text, ha="left" if last else "right", va="center", fontsize=8.5,
            color=INK, zorder=4, path_effects=[withStroke(linewidth=3, foreground=PAPER)],
        )  # fmt: skip
