"""The tables of payoffs of leagues and of PSRO in reports: what is read, shown and left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorl.analysis.figures import DPI, render
from evorl.analysis.payoff_figures import payoff_figure
from evorl.analysis.payoffs import MOST, PayoffTable, payoff_table_figure, read_payoffs
from evorl.analysis.runs import RunRecord

LEAGUE = {
    "step": 500, "generation": 2, "agents": ["main 0", "main exploiter 1"],
    "players": ["main 0", "main exploiter 1", "main 0, number 2"], "policies": [3, 4, 0],
    "score": [[0.5, 0.25, 1.0], [0.75, 0.5, 0.5]], "games": [[0, 4, 2.5], [4, 0, 0]],
}  # fmt: skip
PSRO = {
    "step": 700, "epoch": 1, "policies": [0, 3], "payoff": [[0.0, -2.5], [1.5, 0.0]],
    "mixtures": [[1, 0], [0.25, 0.75]], "value": 0.0, "gain": 0.1,
}  # fmt: skip


def written(directory: Path, *lines: Any) -> RunRecord:
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    (directory / "payoffs.jsonl").write_text(text)
    return RunRecord(directory=directory, config={})


def test_the_newest_table_of_a_league(tmp_path: Path) -> None:
    table = read_payoffs(written(tmp_path, {**LEAGUE, "step": 1}, LEAGUE))
    assert table is not None and table.step == 500 and table.shares is None
    assert (table.rows, table.columns) == (LEAGUE["agents"], LEAGUE["players"])
    np.testing.assert_array_equal(table.values, [[np.nan, 0.25, 1], [0.75, np.nan, np.nan]])
    texts = [text.get_text() for text in payoff_table_figure(table).axes[0].texts]
    assert texts == ["0.25", "1.00", "0.75"]


def test_a_table_of_psro_has_mixtures(tmp_path: Path) -> None:
    table = read_payoffs(written(tmp_path, PSRO))
    assert table is not None and table.shares is not None
    assert table.values.tolist() == PSRO["payoff"] and table.shares.tolist() == PSRO["mixtures"]
    figure = payoff_table_figure(table)
    figure.canvas.draw()
    assert [bar.get_height() for bar in figure.axes[1].patches] == [1, 0, 0.25, 0.75]


@pytest.mark.parametrize(
    "line",
    ["null", "[" * 9999, {**LEAGUE, "score": [[2.0] * 3] * 2}, {**LEAGUE, "games": [[1]]}, {**PSRO, "mixtures": []}],
)
def test_damaged_lines_are_left_out(line: Any, tmp_path: Path) -> None:
    assert read_payoffs(written(tmp_path, line)) is None
    table = read_payoffs(written(tmp_path, LEAGUE, line))
    assert table is not None and table.step == 500


def test_a_run_without_tables_has_no_picture(tmp_path: Path) -> None:
    assert read_payoffs(RunRecord(directory=tmp_path, config={})) is None


def test_large_tables_and_hostile_names_are_drawn(tmp_path: Path) -> None:
    names = ["$\\frac{<script>\x1b[2J" + "x" * 200, *(f"main 0, number {k}" for k in range(99))]
    large = {**LEAGUE, "players": names, "score": [[0.5] * 100] * 2, "games": [[1] * 100] * 2}
    table = read_payoffs(written(tmp_path, large))
    assert table is not None and "\x1b" not in "".join(table.columns) and max(map(len, table.columns)) < 40
    figure = payoff_table_figure(table)
    figure.canvas.draw()
    assert len(figure.axes[0].get_xticks()) == MOST


def test_long_labels_lie_within_the_picture() -> None:
    """Text of the picture's resolution is wider than that of the screen's, for which the layout was made."""
    names = [f"league exploiter {number}, number {10 + number}" for number in range(6)]
    table = PayoffTable(step=1, rows=names[:3], columns=names, values=np.full((3, 6), 0.5), shares=None)
    for figure in (payoff_table_figure(table), payoff_figure(names, np.full((6, 6), 0.5), np.full((2, 6, 6), 0.5))):
        render(figure, "a subtitle")
        figure.set_dpi(DPI)
        wide, high = figure.get_size_inches()
        box = figure.get_tightbbox()
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= wide and box.y1 <= high
