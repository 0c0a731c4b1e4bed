"""Metrics with one value per run, as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evorl.analysis.groups import Group
from evorl.analysis.panels import make_panel
from evorl.analysis.runs import RunRecord, Series
from evorl.analysis.single_values import MOST_COLUMNS, single_values


def groups(values: list[list[float]]) -> list[Group]:
    def run(value: float) -> RunRecord:
        series = Series(*(np.array([x]) for x in (100.0, 1.0, value)))
        return RunRecord(directory=Path("run"), config={}, series={"eval/return_mean": series})

    return [Group({"rl.lr": number}, [run(value) for value in several]) for number, several in enumerate(values)]


def test_means_with_their_intervals() -> None:
    """Of 1, 2, 3 Student's interval is 2 ± 4.303 / sqrt 3 = 2.5."""
    panel = make_panel(groups([[1.0, 2.0, 3.0], [12.3456]]), "eval/return_mean")
    assert single_values([panel], ["a", "b"]) == [{"metric": "eval/return_mean", "a": "2.0 ± 2.5", "b": "12.35"}]


def test_many_groups_are_rows() -> None:
    many = [[float(number)] for number in range(MOST_COLUMNS + 1)]
    panel = make_panel(groups(many), "eval/return_mean")
    rows = single_values([panel], [f"g{number}" for number in range(len(many))])
    assert rows[0] == {"group": "g0", "eval/return_mean": "0"} and len(rows) == len(many)
