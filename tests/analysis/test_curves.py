"""The data of the interactive curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorl.analysis.curves import (
    LEAST_POINTS,
    MOST_MEAN_POINTS,
    MOST_POINTS,
    Points,
    _short,
    curves_json,
    points_per_curve,
)
from evorl.analysis.groups import Group, group_runs
from evorl.analysis.panels import make_panel
from evorl.analysis.runs import RunRecord, Series


def groups(rows: int = 1000, seeds: int = 5) -> list[Group]:
    rng = np.random.default_rng(0)
    runs = []
    for lr in (0.1, 0.2):
        for seed in range(seeds):
            steps, seconds = 100.0 * np.arange(1, rows + 1), np.cumsum(rng.random(rows))
            series = {name: Series(steps, seconds, rng.normal(size=rows)) for name in ("train/return", "loss/policy")}
            runs.append(RunRecord(directory=Path(f"{lr}-{seed}"), config={"rl.lr": lr, "seed": seed}, series=series))
    return group_runs(runs)


def data(shown: list[Group], points: int) -> dict[str, Any]:
    names = {run.directory: str(run.directory) for group in shown for run in group.runs}
    panels = {metric: make_panel(shown, metric) for metric in ("train/return", "loss/policy")}
    return dict(json.loads(curves_json(shown, panels, names, Points(points, 20))))


def test_values_of_a_run_are_recorded_ones() -> None:
    shown = groups()
    found = data(shown, 50)
    runs = [run for group in shown for run in group.runs]
    assert [run["name"] for run in found["runs"]] == [str(run.directory) for run in runs]
    for chart in found["charts"]:
        for number, axis, values in chart["runs"]:
            series = runs[number].series[chart["metric"]]
            steps, seconds = found["axes"][axis]["steps"], found["axes"][axis]["seconds"]
            assert len(values) == len(steps) == len(seconds) == 50 and steps[0] == 100 and steps[-1] == 100_000
            rows = np.searchsorted(series.steps, steps)
            assert values == pytest.approx(series.values[rows], rel=1e-4)
            assert seconds == pytest.approx(series.seconds[rows], rel=1e-6)


def test_metrics_of_the_same_rows_share_their_steps() -> None:
    assert len(data(groups(), 50)["axes"]) == 10


@pytest.mark.parametrize("axis", ["steps", "seconds"])
def test_means_are_those_of_the_pictures(axis: Any) -> None:
    shown = groups()
    chart = data(shown, 50)["charts"][0]
    for curve, found in zip(make_panel(shown, chart["metric"], axis, 1.0).curves, chart["means"][axis], strict=True):
        whole = np.array(found.get("whole", [1] * len(found["x"])), bool)
        rows = np.argmin(np.abs(curve.band.grid[:, None] - np.array(found["x"])), axis=0)
        assert found["y"] == pytest.approx(curve.band.mean[rows], rel=1e-4, abs=1e-9)
        half = np.array(found["half"], float)  # None, where a run is missing, becomes NaN
        assert half[whole] == pytest.approx(curve.band.half[rows][whole], rel=1e-4) and np.isnan(half[~whole]).all()


def test_fewer_than_five_runs_have_no_interval_and_the_limits_are_those_of_the_runs() -> None:
    shown = groups(seeds=4)
    for chart in data(shown, 50)["charts"]:
        assert all("half" not in mean for means in chart["means"].values() for mean in means)
        values = np.concatenate([run.series[chart["metric"]].values for group in shown for run in group.runs])
        assert chart["limits"] == pytest.approx([values.min(), values.max()], rel=1e-4)
        assert chart["quantity"] == ("return" if chart["metric"] == "train/return" else "policy")


def test_more_curves_have_fewer_points() -> None:
    few = groups(10, seeds=3)
    assert points_per_curve([few], [["train/return", "missing"]]) == (MOST_POINTS, MOST_MEAN_POINTS)
    many = points_per_curve([few] * 200, [["train/return", "loss/policy"]] * 200)  # 2 groups of 3 runs each
    assert many == (320_000 // 2400, 160_000 // (6 * 800))
    assert points_per_curve([few] * 10_000, [["train/return"]] * 10_000).run == LEAST_POINTS


def test_numbers_are_rounded_to_significant_digits() -> None:
    values = np.array([0.0, 1.0, -123456.7, 1.23456789e-7, np.nan, np.inf, 0.1 + 0.2, 1e300])
    assert _short(values) == [0.0, 1.0, -123460.0, pytest.approx(1.2346e-7), None, None, 0.3, 1e300]
