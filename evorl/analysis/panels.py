"""Data of a panel, computed before drawing: one metric of several groups of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evorl.analysis.groups import Group, labels_beside
from evorl.analysis.runs import Series
from evorl.analysis.statistics import Band, Floats, band, common_grid, smooth
from evorl.record.metrics import METRICS, Metric, declared
from evorl.util.text import printable

Points = tuple[Floats, Floats]

MIN_RUNS_SHADED = 5
"""Least number of runs for an interval; fewer runs are drawn one by one, since an interval of so few says little."""
SMOOTHING = 1 / 40
"""Width of the moving mean, as a fraction of the horizontal range of the run."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """One group in a panel: its rank among the groups, the recorded points (x, y) of each run, and their band."""

    group: Group
    rank: int
    raw: Sequence[Points]
    band: Band


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """One metric of all groups that recorded it, over environment steps or time."""

    metric: str
    title: str
    quantity: str
    """Label of the vertical axis: the unit of the metric, or its name's last word."""
    unit: str
    """Label of the horizontal axis."""
    curves: Sequence[Curve]
    held: bool = False
    """Whether a value holds until the next one, so that it is drawn as steps."""
    labelled: bool = True
    """Whether there are several runs, which labels tell apart."""

    @property
    def at_end_only(self) -> bool:
        """Whether no run has more than one value, so that there is no curve to draw."""
        return all(len(x) == 1 for curve in self.curves for x, _ in curve.raw)

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest recorded value of any run."""
        values = np.concatenate([y for curve in self.curves for _, y in curve.raw])
        return float(values.min()), float(values.max())

    @property
    def from_zero(self) -> bool:
        """Whether its axis begins at zero: a constant, and the hardware, whose noise would look like a leak."""
        low, high = self.limits
        return low == high or self.metric.startswith("hardware/")

    def interval(self, curve: Curve) -> tuple[Floats, Floats] | None:
        """The edges [G] of the shading around a curve; None with fewer runs than `MIN_RUNS_SHADED`.

        It is Student's interval, cut off at the `limits`: what a metric can be is not known, but a mean of values that
        all lie within some range does too. NaN where some runs have no value.
        """
        shape, n = curve.band, len(curve.raw)
        if n < MIN_RUNS_SHADED:
            return None
        full = np.where(shape.count == n, shape.mean, np.nan)
        return np.clip(full - shape.half, *self.limits), np.clip(full + shape.half, *self.limits)


def make_panel(
    groups: Sequence[Group], metric: str, axis: Literal["steps", "seconds"] = "steps", unit_s: float | None = None
) -> Panel:
    """Smooth a metric of each run, then compute mean and interval over the runs of each group.

    At least one run must have recorded the metric. ``unit_s``: seconds of the
    unit of time; None takes the one that suits the length of the runs.
    """
    series = [[run.series[metric] for run in group.runs if metric in run.series] for group in groups]
    span = max(float(curve.seconds.max()) for several in series for curve in several)
    scale, unit = (1.0, "environment steps") if axis == "steps" else _time_unit(span)
    scale = scale if unit_s is None else unit_s
    raw = [[_points(curve, axis, scale) for curve in several] for several in series]
    known = _known(metric)
    held = known is not None and known.held
    curves = [
        Curve(group=group, rank=rank, raw=points, band=_held_band(points) if held else _band(points))
        for rank, (group, points) in enumerate(zip(groups, raw, strict=True))
        if points
    ]
    return Panel(
        metric=metric, title=printable(metric), quantity=_quantity(metric), unit=unit, curves=curves, held=held,
        labelled=len(groups) > 1 or len(groups[0].runs) > 1,
    )  # fmt: skip


def labels_of(panels: Sequence[Panel]) -> dict[int, str]:
    """The label of each group in a picture of these panels, by rank, with its number of runs; empty for a single run.

    Keys whose value all groups of the picture share are left out.
    """
    curves = {curve.rank: curve for shown in panels if shown.labelled for curve in shown.curves}
    ranks = sorted(curves)
    labels = labels_beside([curves[rank].group for rank in ranks])
    return {rank: f"{label} (n={len(curves[rank].raw)})" for rank, label in zip(ranks, labels, strict=True)}


def _known(metric: str) -> Metric | None:
    return METRICS.get(metric) or declared().get(metric)


def _quantity(metric: str) -> str:
    known = _known(metric)
    unit = "-" if known is None else known.unit
    return printable(metric.rpartition("/")[2]) if unit == "-" or "," in unit else unit


def _points(series: Series, axis: Literal["steps", "seconds"], scale: float) -> Points:
    x = (series.steps if axis == "steps" else series.seconds) / scale
    order = np.argsort(x, kind="stable")
    return x[order], series.values[order]


def _band(points: Sequence[Points]) -> Band:
    """Smooth each run; the band begins where all have values: an earlier mean would jump whenever a run begins."""
    return band([(x, smooth(x, y, SMOOTHING * float(np.ptp(x)))) for x, y in points], _grid(points))


def _held_band(points: Sequence[Points]) -> Band:
    """The same of values that hold until the next one, which are not smoothed."""
    return band(points, _grid(points), held=True)


def _grid(points: Sequence[Points]) -> Floats:
    grid = common_grid([x for x, _ in points])
    return np.asarray(grid[grid >= max(x[0] for x, _ in points)], np.float64)


def _time_unit(seconds: float) -> tuple[float, str]:
    if seconds < 300:
        return 1.0, "time (seconds)"
    return (60.0, "time (minutes)") if seconds < 3 * 3600 else (3600.0, "time (hours)")
