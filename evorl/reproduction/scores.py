"""Interquartile means with stratified bootstrap intervals, as rliable defines them (Agarwal et al. 2021, 2108.13264).

The strata are worlds, so that each keeps its number of seeds (`evorl/analysis/aggregates.py`).

Letters in shapes: N seeds, G points of a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.analysis.aggregates import estimate, iqm
from evorl.analysis.runs import RunRecord
from evorl.ops.student_t import half_width
from evorl.reproduction.table import Policy, Rows

Floats = NDArray[np.float64]
METRIC = "eval/return_mean"
POLICIES = ("policy of the median run", "seed", "return of its last evaluation")
EVERY = 5_000.0
"""Environment steps between evaluations, unless a program says otherwise."""


class Score(NamedTuple):
    """An interquartile mean and its 95 % interval, which is NaN for a single value."""

    iqm: float
    low: float
    high: float

    def __str__(self) -> str:
        return self.text(0)

    def text(self, digits: int) -> str:
        """With so many digits after the point."""
        interval = f" [{self.low:.{digits}f}, {self.high:.{digits}f}]" if np.isfinite(self.low) else ""
        return f"{self.iqm:.{digits}f}{interval}"


def score_text(score: Score | Mapping[str, float | None] | None, digits: int = 0) -> str:
    """A score, or one as plain data (`Score._asdict`, where null is NaN); ``-`` where there is none."""
    if isinstance(score, Mapping):
        score = Score(*(float("nan") if (x := score[name]) is None else float(x) for name in Score._fields))
    return "-" if score is None else score.text(digits)


def score(*strata: Sequence[float]) -> Score:
    """Of the values of each stratum."""
    (iqm,) = scores([np.asarray(stratum, np.float64)[:, None] for stratum in strata])
    return iqm


def _last(run: RunRecord) -> float:
    """The return of its last evaluation; -inf if it has none."""
    return -np.inf if (value := run.last(METRIC)) is None else value


def median_run(runs: Sequence[RunRecord]) -> RunRecord:
    """The run whose last evaluation is the median, of an even number the lower of the two in the middle."""
    return sorted(runs, key=_last)[(len(runs) - 1) // 2]


def median_policies(groups: Mapping[str, Sequence[RunRecord]]) -> tuple[dict[str, Policy], Rows]:
    """Of groups of runs by the names of their policies: those of the median runs, and a table of them."""
    medians = {name: median_run(runs) for name, runs in groups.items()}
    shown = [[name, f"{run.seed}", f"{_last(run):.2f}"] for name, run in medians.items()]
    return {name: Policy(run.directory) for name, run in medians.items()}, Rows(POLICIES, shown)


def mean_text(values: Sequence[float], digits: int = 0) -> str:
    """The mean with so many digits and, of several values, its 95 % interval (Student's t)."""
    interval = f" ± {half_width(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{interval}"


def scored(runs: Sequence[RunRecord], number: Callable[[RunRecord], float]) -> Score | None:
    """Of the runs that have the number; None if there are none."""
    values = [x for run in runs if np.isfinite(x := number(run))]
    return score(values) if values else None


def scores(strata: Sequence[Floats]) -> list[Score]:
    """For each point of a grid, of the values [N, G] of each stratum."""
    return [Score(*estimate(iqm, *values)) for values in zip(*(stratum.T for stratum in strata), strict=True)]


def at(run: RunRecord, step: float, last: int = 1, every: float = EVERY, metric: str = METRIC) -> float:
    """The mean of the last evaluations until a step; an evaluation waits for the end of what then plays.

    NaN where there is none: an evaluation stands for a step less than ``every`` before it.
    """
    curve = run.series.get(metric)
    if curve is None or curve.steps[-1] < step:
        return float("nan")
    end = int(np.searchsorted(curve.steps, step)) + 1
    if curve.steps[end - 1] >= step + every:
        return float("nan")
    return float(curve.values[max(end - last, 0) : end].mean())


def curve(runs: Sequence[RunRecord], end: float, every: float = EVERY, metric: str = METRIC) -> tuple[Floats, Floats]:
    """The steps [G] until an end at which all runs were evaluated, and the score there [G, 3]."""
    grid = np.arange(every, end + 1, every)
    return grid_scores(grid, [[at(run, step, 1, every, metric) for step in grid] for run in runs])


def binned(runs: Sequence[RunRecord], metric: str, end: float, every: float) -> tuple[Floats, Floats]:
    """The same of a metric's mean since the step of the grid before."""
    grid = np.arange(every, end + 1, every)
    return grid_scores(grid, [[mean(run, metric, step - every, step) for step in grid] for run in runs])


def grid_scores(grid: Floats, rows: Sequence[Sequence[float]]) -> tuple[Floats, Floats]:
    """The points of a grid [G] at which every run has a value, and the score there [G, 3]; a row for each run."""
    values = np.array(rows, np.float64).reshape(len(rows), len(grid))
    complete = np.isfinite(values).all(0)
    points = scores([values[:, complete]]) if complete.any() else []
    return grid[complete], np.array(points, np.float64).reshape(-1, 3)


def mean(run: RunRecord, metric: str, begin: float, end: float) -> float:
    """The mean of what a metric was after ``begin`` and until ``end`` steps; NaN where it was never written."""
    series = run.series.get(metric)
    if series is None:
        return float("nan")
    within = (series.steps > begin) & (series.steps <= end)
    return float(series.values[within].mean()) if within.any() else float("nan")


def core_hours(runs: Sequence[RunRecord]) -> float:
    """Wall time of the runs, times their processes."""
    return sum(run.seconds * int(run.config.get("cluster.workers", 1)) for run in runs) / 3600


def samples(runs: Sequence[RunRecord], metric: str = METRIC) -> list[dict[str, Any]]:
    """Every evaluation of each run."""
    curves = [(run.seed, run.series[metric]) for run in runs]
    return [
        {"seed": seed, "steps": returns.steps.tolist(), "return": returns.values.tolist()} for seed, returns in curves
    ]
