"""Which individual of a population or job of a search a report shows as the best: the one that was named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evorl.analysis.lineage import find_lineage
from evorl.analysis.population import PopulationLog, individual_rows, read_population_log, read_search_log
from evorl.analysis.report_tables import population_title
from evorl.analysis.runs import RunRecord


def line(number: int, fitness: float | None, **fields: Any) -> str:
    objectives = {"fitness": fitness}
    parents = [number - 2] if number > 1 else []
    own = {"id": number, "parents": parents, "role": "goes on", "birth": number, "genes": {}, "step": 10 * number + 10}
    return json.dumps({**own, "objectives": objectives, "results": {"fitness": fitness}, **fields}) + "\n"


def log_of(directory: Path, result: dict[str, Any] | None = None, league: bool = False) -> PopulationLog:
    """Six individuals on two lines; number 3 is the fittest."""
    directory.mkdir(exist_ok=True)
    fitness = [1.0, 2.0, 3.0, 9.0, 4.0, None]
    (directory / "population.jsonl").write_text("".join(line(n, value) for n, value in enumerate(fitness)))
    if league:
        (directory / "payoffs.jsonl").write_text("")
    found = read_population_log(RunRecord(directory=directory, config={"ec.population": 2}, result=result))
    assert found is not None
    return found


def test_the_one_that_result_json_names_is_the_best(tmp_path: Path) -> None:
    found = log_of(tmp_path, {"best": {"individual": 4}})
    assert found.best == found.named == 4
    assert [row["individual"] for row in individual_rows(found)] == ["4", "3", "2", "1", "0"]
    assert population_title("Population", found).endswith("first the one that is named best, then by fitness")
    lineage = find_lineage(found)
    assert lineage is not None and [life.row for life in lineage.descent(found.best)] == [4, 2, 0]


@pytest.mark.parametrize("best", [None, [], {}, {"individual": 77}, {"individual": None}, {"individual": [4]}, "4"])
def test_before_one_is_named_the_fittest_is_the_best(best: Any, tmp_path: Path) -> None:
    found = log_of(tmp_path, {"best": best})
    assert found.named is None and found.best == 3
    assert population_title("Population", found) == "Population: the best individuals"


def test_in_a_league_fitness_names_nobody(tmp_path: Path) -> None:
    found = log_of(tmp_path, None, league=True)
    assert found.best is None and found.table_rows[0] == 3
    assert replace(found, run=replace(found.run, result={"best": {"individual": 2}})).best == 2


def test_of_a_search_the_named_job_is_the_best(tmp_path: Path) -> None:
    lines = [(0, 5.0, "a"), (1, 9.0, "b"), (2, 1.0, "c"), (3, 6.0, "a")]  # job a went on
    (tmp_path / "population.jsonl").write_text("".join(line(n, value, job=job) for n, value, job in lines))
    unnamed = read_search_log(tmp_path)
    assert unnamed is not None and unnamed.best == 1
    about = {"job": "a", "objective": "fitness", "fitness": 6.0, "selected_by": "result", "jobs": 3}
    (tmp_path / "best.json").write_text(json.dumps({**about, "candidates": ["a"]}))
    found = read_search_log(tmp_path)
    assert found is not None and found.best == found.named == 3


def test_matches_among_policies_have_no_place_in_a_lineage(tmp_path: Path) -> None:
    """Of PSRO whose oracles begin anew nobody has a parent, though matches name a policy as theirs."""
    oracles = [line(n, 1.0, parents=[], role="oracle") for n in range(4)]
    matches = [line(n, None, parents=[n - 4], role="match") for n in range(4, 8)]
    (tmp_path / "population.jsonl").write_text("".join(oracles + matches))
    anew = read_population_log(RunRecord(directory=tmp_path, config={}))
    assert anew is not None and find_lineage(anew) is None
    going_on = [line(n, 1.0, parents=[n - 2], role="oracle") for n in range(8, 10)]
    (tmp_path / "population.jsonl").write_text("".join(oracles + matches + going_on).replace("[6]", "[0]"))
    log = read_population_log(RunRecord(directory=tmp_path, config={}))
    found = None if log is None else find_lineage(log)
    assert found is not None and {life.row for life in found.lifespans} == {0, 1, 2, 3, 8, 9}
