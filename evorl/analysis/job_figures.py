"""Figures of an evolution with a shared critic: its distribution, what each worker did, and the utilisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evorl.analysis.axes import log_axis, readable_axis
from evorl.analysis.figures import COLOURS, MUTED, PAPER, RULE, style
from evorl.analysis.fronts import STEPS
from evorl.analysis.jobs import ACTIVITIES, CRITIC, EVOLVED, MEAN, RANDOM, TRAIN, TRAINED, JobLog
from evorl.analysis.runs import RunRecord, Series
from evorl.analysis.statistics import Floats
from evorl.util.numbers import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

COLOUR = {CRITIC: 0, TRAIN: 1, TRAINED: 4, EVOLVED: 5, MEAN: 2, RANDOM: 6}
"""Index in `COLOURS` of each activity."""
MAX_WORKERS = 24
"""Workers drawn: the first ones."""
EVERY_JOB = 40
"""Jobs for each worker of which every one can be seen; a longer run is drawn whole in bins, and in part in full."""
MAX_BINS = 160
FEW = 20
"""Values of a line that are drawn as dots, too."""


def distribution_figure(run: RunRecord) -> Figure | None:
    """Draw the trained share and the standard deviation over steps; None if the run has no trained share."""
    from matplotlib.figure import Figure

    if "population/trained_share" not in run.series:
        return None
    with style():
        figure = Figure(figsize=(9.2, 3.3), layout=_layout())
        left, right = figure.subplots(1, 2)
        _draw_shares(left, run)
        _draw_sigma(right, run)
        for axes in (left, right):
            axes.set_xlabel(STEPS)
            readable_axis(axes.xaxis, 5)
            axes.set_xlim(left=0)
    return figure


def _draw_shares(axes: Axes, run: RunRecord) -> None:
    names = {"population/trained_share": "of the population", "population/elites_trained": "of the elite"}
    for rank, (name, label) in enumerate(names.items()):
        if (series := run.series.get(name)) is not None:
            _draw_steps(axes, series, COLOURS[rank], label, "-" if rank == 0 else (0, (4, 4)))  # the first shows below
    axes.set(title="Share of trained individuals", ylim=(-0.03, 1.03))
    readable_axis(axes.yaxis, 5)
    axes.legend(loc="best", fontsize=8.5)


def _draw_steps(axes: Axes, series: Series, colour: str, label: str | None = None, dashes: Any = "-") -> None:
    """Draw what stays until the next generation ends; with dots if they are few, so that one alone is seen."""
    dots = "o" if len(series.steps) <= FEW else ""
    axes.plot(
        series.steps, series.values, drawstyle="steps-post", marker=dots, markersize=3.5,
        color=colour, linewidth=1.5, linestyle=dashes, label=label,
    )  # fmt: skip


def _draw_sigma(axes: Axes, run: RunRecord) -> None:
    axes.set_title("Standard deviation (mean over parameters)")
    if (series := run.series.get("population/sigma")) is None:
        return
    _draw_steps(axes, series, COLOURS[0])
    if (series.values > 0).all() and series.values.max() > 10 * series.values.min():
        log_axis(axes, series.values, axes.yaxis)
    else:
        readable_axis(axes.yaxis, 5)


# ------------------------------------------------------------------ timeline


def work_figures(log: JobLog) -> Iterator[tuple[str, str, Figure]]:
    """Yield file name, description and figure of each picture of the jobs of a run."""
    with style():
        yield "timeline", "what each worker did by seconds", _timeline_figure(log)
        yield "utilisation", "share of the workers' time by seconds and by worker", _utilisation_figure(log)


def _timeline_figure(log: JobLog) -> Figure:
    """Draw a row for each worker: every job if they are few, else the whole run in bins and every job of its middle."""
    from matplotlib.figure import Figure

    window = _window(log)
    panels = 1 if window == log.span else 2
    height = 0.24 * min(len(log.workers), MAX_WORKERS) + 0.75
    figure = Figure(figsize=(9.6, height * panels + 0.5), layout=_layout())
    grid = figure.subplots(panels, 1, squeeze=False).ravel()
    unit, name = _unit(log.span[1])
    own = _unit(0.0) if panels == 2 else (unit, name)
    if panels == 2:
        edges = log.bins(MAX_BINS)
        _draw_shares_of_bins(grid[0], log, edges, unit)
        grid[0].set_title(f"The whole run, share of each {format_number(edges[1] - edges[0])} s")
        _time_axis(grid[0], log.span, unit, name)
    _draw_every_job(grid[-1], log, window, own[0])
    low, high = window
    grid[-1].set_title(
        "Every job" if panels == 1 else f"Every job from second {format_number(low)} to {format_number(high)}"
    )
    _time_axis(grid[-1], window, *own)
    _legend(figure, log)
    return figure


def _window(log: JobLog) -> tuple[float, float]:
    """Return the part of the run of which every job is drawn: in its middle, about `EVERY_JOB` jobs of each worker."""
    low, high = log.span
    share = EVERY_JOB * len(log.workers) / len(log.jobs)
    if share >= 1:
        return low, high
    half, middle = share * (high - low) / 2, (low + high) / 2
    return middle - half, middle + half


def _draw_every_job(axes: Axes, log: JobLog, window: tuple[float, float], unit: float) -> None:
    s = log.stretches
    seen = (s.ended > window[0]) & (s.began < window[1])
    _draw_rows(axes, log, unit)
    for row, worker in enumerate(log.workers[:MAX_WORKERS]):
        for activity, place in COLOUR.items():
            own = seen & (s.worker == worker) & (s.activity == activity)
            bars = list(zip(s.began[own] / unit, (s.ended[own] - s.began[own]) / unit, strict=True))
            axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=COLOURS[place], edgecolor=PAPER, linewidth=0.4)


def _draw_shares_of_bins(axes: Axes, log: JobLog, edges: Floats, unit: float) -> None:
    """Fill a part of each worker's row, for each bin, with the share of the time that an activity took."""
    share = log.seconds(edges) / np.diff(edges)[:, None, None]
    _draw_rows(axes, log, unit)
    for row in range(min(len(log.workers), MAX_WORKERS)):
        _stack(axes, edges / unit, share[:, row], base=row + 0.4, scale=-0.8)


def _stack(axes: Axes, edges: Floats, share: Floats, base: float = 0.0, scale: float = 1.0) -> None:
    """Fill steps between edges `[B + 1]` with shares `[B, A]`, one activity on the other."""
    tops = np.c_[np.zeros(len(share)), np.cumsum(share, axis=1)]
    steps = base + scale * np.r_[tops, tops[-1:]]
    for activity, place in COLOUR.items():
        axes.fill_between(edges, steps[:, activity], steps[:, activity + 1], step="post", color=COLOURS[place], lw=0)


def _draw_rows(axes: Axes, log: JobLog, unit: float) -> None:
    """Draw a pale bar for each worker from its first job to its last, and label it."""
    shown = log.workers[:MAX_WORKERS]
    for row, (began, ended) in enumerate(log.spans[: len(shown)] / unit):
        axes.broken_barh([(began, ended - began)], (row - 0.4, 0.8), facecolors=RULE)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_yticks(range(len(shown)), [f"worker {worker}" for worker in shown])
    axes.grid(False)


# ------------------------------------------------------------------ utilisation


def _utilisation_figure(log: JobLog) -> Figure:
    from matplotlib.figure import Figure

    rows = min(len(log.workers), MAX_WORKERS)
    figure = Figure(figsize=(9.6, max(4.2, 0.24 * rows + 1.2)), layout=_layout())
    grid = figure.add_gridspec(2, 2, width_ratios=(3, 2), height_ratios=(3, 2))
    time, slots = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
    edges, (unit, name) = log.bins(MAX_BINS), _unit(log.span[1])
    _draw_busy_share(time, log, edges, unit)
    _draw_slots(slots, log, edges, unit)
    _time_axis(time, log.span, unit, name)
    _time_axis(slots, log.span, unit, name)
    _draw_workers(figure.add_subplot(grid[:, 1]), log)
    _legend(figure, log)
    return figure


def _draw_busy_share(axes: Axes, log: JobLog, edges: Floats, unit: float) -> None:
    present = log.presence(edges).sum(axis=1)
    share = log.seconds(edges).sum(axis=1) / np.maximum(present, 1e-9)[:, None]
    axes.fill_between(edges[[0, -1]] / unit, 0.0, 100.0, color=RULE, lw=0)
    _stack(axes, edges / unit, 100 * share)
    axes.set(title="All workers", ylabel="% of their time", ylim=(0, 100))
    readable_axis(axes.yaxis, 4)


def _draw_slots(axes: Axes, log: JobLog, edges: Floats, unit: float) -> None:
    """Draw the mean number of individuals at work, and the number of slots."""
    individuals = np.delete(log.seconds(edges), CRITIC, axis=2).sum(axis=(1, 2)) / np.diff(edges)
    axes.stairs(individuals, edges / unit, color=MUTED, linewidth=1.5)
    axes.set_title("Individuals at work")
    if log.slots is not None:
        axes.axhline(log.slots, color=COLOURS[1], linewidth=1.2, linestyle=(0, (5, 2)))
        axes.set_title(f"Individuals at work (dashed: {log.slots} slots)")
    axes.set_ylim(0, 1.1 * max(log.slots or 0, float(individuals.max()), 1.0))
    axes.set_ylabel("individuals")
    readable_axis(axes.yaxis, 4)


def _draw_workers(axes: Axes, log: JobLog) -> None:
    """Draw a bar for each worker: the share of its time for each activity, with its busy share in its label."""
    whole = np.array(log.span)
    share = 100 * log.seconds(whole)[0] / np.maximum(log.presence(whole)[0], 1e-9)[:, None]  # [W, A]
    shown = log.workers[:MAX_WORKERS]
    rows, left = np.arange(len(shown)), np.zeros(len(shown))
    axes.barh(rows, 100.0, height=0.7, color=RULE)
    for activity, place in COLOUR.items():
        axes.barh(rows, share[: len(shown), activity], left=left, height=0.7, color=COLOURS[place])
        left += share[: len(shown), activity]
    axes.set_yticks(rows, [f"worker {worker}: {busy:.0f} %" for worker, busy in zip(shown, left, strict=True)])
    axes.set(title="Each worker", xlabel="% of its time", xlim=(0, 100), ylim=(len(shown) - 0.4, -0.6))
    axes.grid(False)
    readable_axis(axes.xaxis, 5)


# ------------------------------------------------------------------ what they share


def _layout() -> ConstrainedLayoutEngine:
    """Return a layout with room between the panels."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)


def _legend(figure: Figure, log: JobLog) -> None:
    """Add a key for the activities that the run has; say which workers are not drawn."""
    from matplotlib.patches import Patch

    seen = {int(activity) for activity in log.stretches.activity}
    keys = [Patch(color=COLOURS[COLOUR[a]], label=ACTIVITIES[a]) for a in range(len(ACTIVITIES)) if a in seen]
    title = f"The first {MAX_WORKERS} of {len(log.workers)} workers" if len(log.workers) > MAX_WORKERS else None
    handles: Sequence[Patch] = [*keys, Patch(color=RULE, label="waiting")]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, fontsize=8, title=title, handlelength=1.2)


def _unit(seconds: float) -> tuple[float, str]:
    """Return the length in seconds, and the name, of the unit for the time of a run."""
    return (1.0, "s") if seconds < 1200 else (60.0, "min") if seconds < 4 * 3600 else (3600.0, "h")


def _time_axis(axes: Axes, span: tuple[float, float], unit: float, name: str) -> None:
    axes.set_xlim(span[0] / unit, max(span[1], span[0] + 1e-3) / unit)
    axes.set_xlabel(f"time since the run began ({name})")
    readable_axis(axes.xaxis, 8)
