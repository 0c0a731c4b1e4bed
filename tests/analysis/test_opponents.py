"""The table of opponents of a run in reports: what it reads, shows and leaves out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from evorl.analysis.groups import Group
from evorl.analysis.opponents import (
    LONGEST,
    MOST,
    opponent_figure,
    opponent_logs,
    opponent_rows,
    read_opponent_log,
    short,
)
from evorl.analysis.runs import RunRecord
from evorl.opponents.core import PastSelves
from evorl.opponents.pool import RULE, Game, Pool, row


def written(directory: Path, *lines: Any) -> RunRecord:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (directory / "opponents.jsonl").write_text(text)
    return RunRecord(directory=directory, config={})


def rows_of_a_pool() -> list[dict[str, Any]]:
    """The rows of two evaluations; in between the first snapshot leaves."""
    pool = Pool(PastSelves(rule=True, capacity=1, snapshot=100))
    pool.add_if_due([], 0, 0)
    pool.record([Game(RULE, 1.0), Game(0, 0.0), Game(0, 0.5)], [0])
    rows = pool.rows(50)
    pool.add_if_due([], 100, 0)
    (left,) = pool.record([], [])
    return [*rows, row(left, 120, None), *pool.rows(150)]


def test_scores_are_by_opponent_and_table(tmp_path: Path) -> None:
    log = read_opponent_log(written(tmp_path, *rows_of_a_pool()))
    assert log is not None and log.steps == [50, 150] and not log.damaged
    assert list(log.last) == ["latest", "rule", "snapshot 0", "snapshot 1"]
    wanted = [[math.nan, math.nan], [1, 1], [0.25, math.nan], [math.nan, math.nan]]
    np.testing.assert_equal(log.scores(list(log.last)), wanted)
    shown = {one["opponent"]: one for one in opponent_rows(log)}
    assert shown["snapshot 0"]["in the pool"] == "left by 120" and shown["snapshot 1"]["in the pool"] == "yes"
    assert (shown["snapshot 0"]["games"], shown["snapshot 0"]["losses"], shown["snapshot 0"]["draws"]) == (2, 1, 1)
    assert (shown["latest"]["born"], shown["snapshot 1"]["born"]) == (150, 100)


def test_a_run_without_opponents_has_no_picture(tmp_path: Path) -> None:
    assert read_opponent_log(RunRecord(directory=tmp_path, config={})) is None
    assert read_opponent_log(written(tmp_path, "{}")) is None


def test_hostile_lines_are_left_out(tmp_path: Path) -> None:
    good = rows_of_a_pool()
    bad = [{**good[0], "score": 1.5}, {**good[0], "step": -1}, {**good[0], "opponent": 3}, "[" * 9999, "null"]
    named = {**good[1], "opponent": "$\\frac{<script>\x1b[2J" + "x" * 200}
    log = read_opponent_log(written(tmp_path, *bad, named, *good))
    assert log is not None and log.damaged == len(bad) and len(log.last) == 5
    assert "\x1b" not in "".join(str(one["opponent"]) for one in opponent_rows(log))
    opponent_figure(log).canvas.draw()


def test_an_opponent_has_no_field_before_it_is_born(tmp_path: Path) -> None:
    base = rows_of_a_pool()[1]
    old, young = {**base, "opponent": "rule", "born": 0}, {**base, "opponent": "snapshot 0", "born": 70}
    lines = [{**old, "step": 50}, {**old, "step": 100}, {**young, "step": 100}, {**young, "step": 150}]
    log = read_opponent_log(written(tmp_path, *lines))
    assert log is not None
    (fields,) = opponent_figure(log).axes[0].collections
    found = sorted((x.min(), x.max(), y.mean()) for x, y in (path.vertices[:4].T for path in fields.get_paths()))
    assert found == [(0, 50, 0), (50, 100, 0), (70, 100, 1), (100, 150, 1)]
    others = [{**base, "opponent": "a/run@best", "born": 5_000, "step": 50}]  # by the steps of its own run
    log = read_opponent_log(written(tmp_path, *others))
    assert log is not None
    (fields,) = opponent_figure(log).axes[0].collections
    assert [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in fields.get_paths()] == [(0, 50)]
    newest = [{**base, "opponent": "latest", "born": step, "step": step} for step in (50, 100)]
    log = read_opponent_log(written(tmp_path, *newest))
    assert log is not None
    (fields,) = opponent_figure(log).axes[0].collections
    assert [path.vertices[:, 0].min() for path in fields.get_paths()] == [0, 50]  # it has played before it was renewed


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    name = "pong-ppo-league/20261129-163407-s0@snapshot:10"
    assert short("x" * LONGEST) == "x" * LONGEST and len(short(name)) == LONGEST
    assert short(name).startswith("pong-ppo-league") and short(name).endswith("-s0@snapshot:10")


def test_a_picture_of_a_great_pool_shows_some_of_it(tmp_path: Path) -> None:
    many = [{**rows_of_a_pool()[1], "opponent": f"snapshot {n}"} for n in range(500)]
    log = read_opponent_log(written(tmp_path, *many))
    assert log is not None
    labels = [one.get_text() for one in opponent_figure(log).axes[0].get_yticklabels()]
    assert len(labels) == MOST and (labels[0], labels[-1]) == ("snapshot 0", "snapshot 499")


def test_the_groups_that_have_opponents_are_found_wherever_they_stand(tmp_path: Path) -> None:
    groups = []
    for number in range(10):
        (place := tmp_path / str(number)).mkdir()
        groups.append(Group({"rl.lr": number}, [RunRecord(directory=place, config={})]))
    for number in (7, 9):
        written(tmp_path / str(number), *rows_of_a_pool())
    assert [log.run.directory.name for log in opponent_logs(groups).values()] == ["7", "9"]
