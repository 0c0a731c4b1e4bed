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


def test_a_threshold_of_a_curve_is_met_at_the_first_evaluation_there() -> None:
    from sampling import threshold_steps

    from evorl.record.runs import Series

    steps, values = np.array([10.0, 20.0, 30.0]), np.array([-5.0, -1.0, -3.0])
    curve = Series(steps, steps, values)
    assert threshold_steps(curve, -1.0) == 20.0 and threshold_steps(curve, 0.0) is None


def test_searches_in_generations_count_whole_ones() -> None:
    from asynchronous import Profile, Told, busy, curve, summary

    # two workers; generations of two, each of which waits for its slower one
    times = [(3, 1, 0.1), (3, 3, 0.4), (6, 2, 0.2), (6, 3, 0.3), (7, 1, 0.9)]
    found = [Told(at, took, fitness, 100, 1) for at, took, fitness in times]
    assert busy(found, 6.0) == pytest.approx((1 + 3 + 2 + 3) / 12)
    told = summary(found, Profile(2, 7.5, 1), whole=True)
    assert told["busy"] == pytest.approx(9 / 12) and told["evaluations per minute"] == pytest.approx(40.0)
    assert told["best"] == 0.9 and told["steps per second"] == pytest.approx(400 / 6)
    assert curve(found, np.array([2.0, 3.0, 6.5, 7.0])).tolist()[1:] == [0.4, 0.4, 0.9]
    assert np.isnan(curve(found, np.array([2.0]))[0])


def test_a_lead_is_that_of_the_same_rounds() -> None:
    from cartpole import row

    own, theirs = [[200, 1.0, 2], [600, 1.0, 2]], [[100, 1.0, 4], [100, 2.0, 4]]
    assert row("peer", theirs, own) == ["peer", "75", "50", "100", "7.00", "25"]
