"""Data of the interactive curves of a page, as JSON: thinned values of each run, and the mean of each group.

The page draws them with uPlot (``web/page.js``), by environment steps or by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from evorl.analysis.groups import Group
from evorl.analysis.panels import MIN_RUNS_SHADED, Curve, Panel, make_panel
from evorl.analysis.runs import Series
from evorl.analysis.statistics import Floats, thinned
from evorl.util.text import printable

VALUES, MOST_POINTS, LEAST_POINTS = 320_000, 400, 12
"""Values of runs in a page, and the most and the least of a curve: more curves have fewer points each, so that a page
stays below 5 MB."""
MEAN_VALUES, MOST_MEAN_POINTS, LEAST_MEAN_POINTS = 160_000, 80, 16
"""The same of the means of groups."""
DIGITS = 5


class Points(NamedTuple):
    """Most points of a run's curve, and of the mean of a group."""

    run: int
    mean: int


def points_per_curve(worlds: Sequence[Sequence[Group]], metrics: Sequence[Sequence[str]]) -> Points:
    """How many points the curves of a page have, from their number. ``metrics``: those of each world."""
    several = [
        sum(metric in run.series for run in group.runs)
        for groups, names in zip(worlds, metrics, strict=True)
        for group in groups
        for metric in names
    ]
    means = 2 * 3 * sum(n > 0 for n in several)  # by steps and by time: places, means and intervals
    return Points(
        int(np.clip(VALUES // max(sum(several), 1), LEAST_POINTS, MOST_POINTS)),
        int(np.clip(MEAN_VALUES // max(means, 1), LEAST_MEAN_POINTS, MOST_MEAN_POINTS)),
    )


def curves_json(
    groups: Sequence[Group], panels: Mapping[str, Panel], names: Mapping[Path, str], points: Points
) -> bytes:
    """Return the curves of a world's metrics as JSON.

    ``panels``: those of the metrics over environment steps; ``names``: of the runs.
    Steps and seconds are stored once for all metrics that a run wrote in the same rows.
    """
    places = {run.directory: number for number, run in enumerate(run for group in groups for run in group.runs)}
    axes: list[dict[str, list[float | None]]] = []
    charts = []
    known: dict[tuple[Any, ...], int] = {}
    for metric, panel in panels.items():
        runs = []
        for group in groups:
            for run in group.runs:
                if metric in run.series:
                    series = run.series[metric]
                    rows = thinned(len(series), points.run)
                    runs.append([places[run.directory], _axis(series, rows, axes, known), _short(series.values[rows])])
        by_time = make_panel(groups, metric, "seconds", 1.0)
        means = {
            axis: [_mean(curve, points.mean) for curve in shown.curves]
            for axis, shown in (("steps", panel), ("seconds", by_time))
        }
        charts.append(
            {
                "metric": printable(metric), "quantity": panel.quantity, "limits": _short(np.array(panel.limits)),
                "held": panel.held, "from_zero": panel.from_zero, "runs": runs, "means": means,
            }
        )  # fmt: skip
    return msgspec.json.encode(
        {
            "groups": [{"label": group.label, "n": len(group.runs)} for group in groups],
            "runs": [
                {"name": names[run.directory], "group": rank, "seed": _seed(run.seed)}
                for rank, group in enumerate(groups)
                for run in group.runs
            ],
            "axes": axes,
            "charts": charts,
        }
    )


def _seed(seed: Any) -> int | str | None:
    return seed if isinstance(seed, int) or seed is None else printable(seed)


def _axis(
    series: Series, rows: Any, axes: list[dict[str, list[float | None]]], known: dict[tuple[Any, ...], int]
) -> int:
    """The number of the steps and seconds of these rows, which are added if they are new."""
    key = (len(series), series.steps[rows].tobytes(), series.seconds[rows].tobytes())
    if key not in known:
        known[key] = len(axes)
        axes.append({"steps": series.steps[rows].tolist(), "seconds": _short(series.seconds[rows], 7)})
    return known[key]


def _mean(curve: Curve, points: int) -> dict[str, Any]:
    """Mean and interval of a group; ``whole``: where all of its runs have values."""
    rows = thinned(len(curve.band.grid), points)
    n = len(curve.raw)
    shown = {"group": curve.rank, "x": _short(curve.band.grid[rows], 7), "y": _short(curve.band.mean[rows])}
    half = np.where(curve.band.count == n, curve.band.half, np.nan)[rows]
    whole = curve.band.count[rows] == n
    return shown | (
        ({"half": _short(half)} if n >= MIN_RUNS_SHADED else {})
        | ({} if whole.all() else {"whole": whole.astype(int).tolist()})
    )


def _short(values: Floats, digits: int = DIGITS) -> list[float | None]:
    """The values with so many significant digits; None for what is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** np.clip(digits - 1 - np.floor(np.log10(np.abs(values))), -300, 300)
        rounded = np.where(values == 0, 0.0, np.round(values * scale) / scale)
    return [None if value != value or abs(value) == np.inf else value for value in rounded.tolist()]
