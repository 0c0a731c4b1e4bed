"""The parts of the reproducers that need neither hours nor peers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("speed", "marvin", "lamarckian", "ec"):
        monkeypatch.syspath_prepend(str(BENCHMARKS / name))


def test_a_curve_has_a_point_for_each_whole_generation(tmp_path: Path) -> None:
    from walk import POPULATION, curve

    rows = [{"objectives": {"fitness": float(n // POPULATION)}, "step": 10 * n} for n in range(2 * POPULATION + 3)]
    torn = '{"objectives": {"fit'
    (tmp_path / "population.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)
    returns, steps = curve(tmp_path)
    assert returns.tolist() == [0.0, 1.0] and steps.tolist() == [10 * (POPULATION - 1), 10 * (2 * POPULATION - 1)]


def test_a_threshold_is_passed_by_a_mean_and_not_by_a_spike() -> None:
    from walk import passed

    spike = np.array([0.0] * 8 + [400.0] + [0.0] * 8)
    assert passed(spike, 100) is None
    assert passed(np.arange(20.0), 10.0) == 13  # 9 .. 13 have the mean 11
    assert passed(np.array([5.0]), 1.0) is None


def test_rates_are_those_between_the_first_and_the_last_result() -> None:
    from pbt import rate, row

    ours, theirs = [(5.0, 100, 0.1), (15.0, 2100, 0.8)], [(50.0, 10, 0.2), (60.0, 110, 0.3)]
    assert rate(ours) == 200.0
    assert row("peer", theirs, ours)[1:5] == ["10", "20.0", ">= 60", ">= 4.0"]


def test_workers_are_busy_from_the_first_beginning_to_the_end_of_so_many() -> None:
    from busy import WORKERS, busy

    times = np.array([[0.0, 1.0], [0.0, 3.0], [1.0, 2.0], [2.0, 9.0], [5.0, 6.0]])
    found = busy(times, 3)  # until 3.0
    assert found["seconds"] == 3.0
    assert found["busy"] == pytest.approx((1 + 3 + 1 + 1) / (WORKERS * 3))
