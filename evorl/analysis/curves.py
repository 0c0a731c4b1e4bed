"""Data of the interactive curves of a page, as JSON: thinned values of each run, and the mean of each group.

The page draws them with uPlot (``web/page.js``), by environment steps or by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from evorl.analysis.figures import MIN_RUNS_SHADED
from evorl.analysis.groups import Group
from evorl.analysis.panels import Curve, Panel, make_panel
from evorl.analysis.runs import Series
from evorl.analysis.statistics import Floats

MOST_POINTS, LEAST_POINTS = 400, 12
VALUES = 320_000
"""Values of runs in a page; more curves have fewer points each, so that a page stays below 5 MB."""
MEAN_POINTS = 80
DIGITS = 5


def points_per_curve(worlds: Sequence[Sequence[Group]], metrics: Sequence[Sequence[str]]) -> int:
    """How many points of each run a page shows, from the number of curves in it. ``metrics``: those of each world."""
    curves = sum(
        metric in run.series
        for groups, names in zip(worlds, metrics, strict=True)
        for group in groups
        for run in group.runs
        for metric in names
    )
    return int(np.clip(VALUES // max(curves, 1), LEAST_POINTS, MOST_POINTS))


def curves_json(groups: Sequence[Group], panels: Mapping[str, Panel], names: Mapping[Path, str], points: int) -> bytes:
    """Return the curves of a world's metrics as JSON.

    ``panels``: those of the metrics over environment steps; ``names``: of the runs; ``points``: most of each run.
    Steps and seconds are stored once for all metrics that a run wrote in the same rows.
    """
    places = {run.directory: number for number, run in enumerate(run for group in groups for run in group.runs)}
    axes: list[dict[str, list[float]]] = []
    charts = []
    known: dict[tuple[Any, ...], int] = {}
    for metric, panel in panels.items():
        runs = []
        for group in groups:
            for run in group.runs:
                if metric in run.series:
                    series = run.series[metric]
                    rows = _thinned(len(series), points)
                    runs.append([places[run.directory], _axis(series, rows, axes, known), _short(series.values[rows])])
        by_time = make_panel(groups, metric, "seconds", 1.0)
        means = {"steps": [*map(_mean, panel.curves)], "seconds": [*map(_mean, by_time.curves)]}
        charts.append({"metric": metric, "runs": runs, "means": means})
    return msgspec.json.encode(
        {
            "groups": [{"label": group.label, "n": len(group.runs)} for group in groups],
            "runs": [
                {"name": names[run.directory], "group": rank, "seed": run.seed}
                for rank, group in enumerate(groups)
                for run in group.runs
            ],
            "axes": axes,
            "charts": charts,
        }
    )


def _axis(series: Series, rows: Any, axes: list[dict[str, list[float]]], known: dict[tuple[Any, ...], int]) -> int:
    """The number of the steps and seconds of these rows, which are added if they are new."""
    key = (len(series), series.steps[rows].tobytes(), series.seconds[rows].tobytes())
    if key not in known:
        known[key] = len(axes)
        axes.append({"steps": series.steps[rows].tolist(), "seconds": _short(series.seconds[rows], 7)})
    return known[key]


def _mean(curve: Curve) -> dict[str, Any]:
    """Mean and interval of a group; ``whole`` tells where all of its runs have values."""
    rows = _thinned(len(curve.band.grid), MEAN_POINTS)
    n = len(curve.raw)
    shown = {"group": curve.rank, "x": _short(curve.band.grid[rows], 7), "y": _short(curve.band.mean[rows])}
    half = np.where(curve.band.count == n, curve.band.half, np.nan)[rows]
    whole = curve.band.count[rows] == n
    return shown | (
        ({"half": _short(half)} if n >= MIN_RUNS_SHADED else {})
        | ({} if whole.all() else {"whole": whole.astype(int).tolist()})
    )


def _thinned(rows: int, most: int) -> Any:
    """Row numbers, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).round().astype(int))


def _short(values: Floats, digits: int = DIGITS) -> list[float | None]:
    """The values with so many significant digits; None for what is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** np.clip(digits - 1 - np.floor(np.log10(np.abs(values))), -300, 300)
        rounded = np.where(values == 0, 0.0, np.round(values * scale) / scale)
    return [None if one != one or abs(one) == np.inf else one for one in rounded.tolist()]
