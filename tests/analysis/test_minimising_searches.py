"""A report on a search that minimises: the best is the lowest, in every table and figure that names one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evorl.analysis.comparison import VERDICT, comparison_rows, summary
from evorl.analysis.groups import Group, group_runs
from evorl.analysis.importance import importance
from evorl.analysis.opponents import of_fittest
from evorl.analysis.population import population_logs
from evorl.analysis.runs import RunRecord
from evorl.analysis.scores import world_scores
from evorl.analysis.sweep_figure import parallel_json, sweep_fitness
from evorl.analysis.sweeps import seeks_lowest
from evorl.util.files import write_json


def jobs(place: Path, direction: str = "minimize", objectives: Any = ("fitness",)) -> list[Group]:
    """Three kinds with three values of x and three seeds; the cost of a run is the least for ``b`` with 0.1."""
    cost = {"a": 20.0, "b": 5.0, "c": 60.0}
    rows = [(kind, x, seed) for kind in cost for x in (0.1, 0.2, 0.3) for seed in range(3)]
    sought = {"direction": direction, "evolver": {"objectives": objectives}}
    write_json(place / "search.json", {"hydra.sweeper": sought, "genes": {}, "words": {}})
    return group_runs(
        [
            RunRecord(
                directory=place / str(number), config={"kind": kind, "rl.x": x, "seed": seed},
                result={"fitness": cost[kind] + 10 * x + 0.1 * seed},
            )
            for number, (kind, x, seed) in enumerate(rows)
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("direction", "objectives", "lowest"),
    [
        ("minimize", ["fitness"], True),
        ("minimize", ["return"], True),
        ("maximize", [{"fitness": -1, "length": 2}], True),
        ("maximize", ["fitness"], False),
        ("minimize", [{"fitness": -1}], False),
        ("minimize", ["length"], False),
        ("maximize", ["length", {"fitness": -1}], False),
        ("minimize", "nonsense", True),
    ],
)
def test_which_searches_seek_the_lowest_fitness(tmp_path: Path, direction: str, objectives: Any, lowest: bool) -> None:
    runs = [run for group in jobs(tmp_path, direction, objectives) for run in group.runs]
    assert seeks_lowest(runs) is lowest
    assert not seeks_lowest([*runs, RunRecord(directory=tmp_path / "other" / "0", config={})])
    assert not seeks_lowest([])
    for broken in (b"[]", b'{"hydra.sweeper": 3}', b"{"):
        (tmp_path / "search.json").write_bytes(broken)
        assert not seeks_lowest(runs)


def test_the_comparison_names_the_lowest_first(tmp_path: Path) -> None:
    groups = group_runs([run for group in jobs(tmp_path) for run in group.runs], ("kind",))
    rows = comparison_rows(next(world_scores("world", groups, None)))
    assert [row["kind"] for row in rows] == ["b", "a", "c"]
    assert [row["IQM"] for row in rows] == pytest.approx([7.1, 22.1, 62.1])
    assert rows[0][VERDICT] == "lowest" and all(row[VERDICT].startswith("higher (p = ") for row in rows[1:])
    assert [row["IQM"] for row in rows] == sorted(row["IQM"] for row in rows)
    said = summary(rows)
    assert said.startswith("Lowest: kind=b, IQM 7.1 ") and "Higher: kind=a (better in 0 % of pairs" in said
    jobs(tmp_path, "maximize")
    turned = comparison_rows(next(world_scores("world", groups, None)))
    assert [row["kind"] for row in turned] == ["c", "a", "b"] and turned[0][VERDICT] == "highest"


def test_the_optimality_gap_is_on_the_side_of_the_worse(tmp_path: Path) -> None:
    groups = group_runs([run for group in jobs(tmp_path) for run in group.runs], ("kind",))
    (scores,) = world_scores("world", groups, 20.0)
    gaps = {row["kind"]: row["optimality gap"] for row in comparison_rows(scores)}
    assert gaps == pytest.approx({"a": 2.1, "b": 0.0, "c": 42.1})
    jobs(tmp_path, "maximize")
    (scores,) = world_scores("world", groups, 22.0)
    gaps = {row["kind"]: row["optimality gap"] for row in comparison_rows(scores)}
    assert gaps["c"] == 0.0 and gaps["b"] == pytest.approx(14.9)


def test_importance_and_the_figure_name_the_lowest(tmp_path: Path) -> None:
    groups = jobs(tmp_path)
    shown, found = sweep_fitness(groups), importance(groups)
    assert shown is not None and found is not None
    assert shown.values[shown.order[-1]] == ["b", 0.1]
    assert json.loads(parallel_json(shown))["best"] == min(shown.fitness)
    assert {row["key"]: row["best value"] for row in found.rows if row["key"] != "seed"} == {"kind": "b", "rl.x": "0.1"}
    assert "that of the lowest mean fitness" in found.words
    jobs(tmp_path, "maximize")
    shown, found = sweep_fitness(groups), importance(groups)
    assert shown is not None and found is not None
    assert shown.values[shown.order[-1]] == ["c", 0.3] and "that of the highest mean fitness" in found.words


def test_the_population_that_is_shown_is_of_the_best_run(tmp_path: Path) -> None:
    line = {"id": 0, "parents": [], "role": "initial", "birth": 0, "genes": {}, "objectives": {"fitness": 1}, "step": 1}
    group = jobs(tmp_path)[0]
    for run in group.runs:
        run.directory.mkdir()
        (run.directory / "population.jsonl").write_text(json.dumps(line) + "\n")
    assert [log.run.result for log in population_logs([group]).values()] == [{"fitness": pytest.approx(21.0)}]
    assert [*of_fittest([group], "Payoffs", lambda run: run.result).values()] == [{"fitness": pytest.approx(21.0)}]
    jobs(tmp_path, "maximize")
    assert [log.run.result for log in population_logs([group]).values()] == [{"fitness": pytest.approx(21.2)}]
    assert [*of_fittest([group], "Payoffs", lambda run: run.result).values()] == [{"fitness": pytest.approx(21.2)}]
