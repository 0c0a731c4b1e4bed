"""The table of searches: how runs are read, that all have the same words but the search, and the program made tiny."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.suite.searches import SEARCHES, TABLE, analyse, measured
from evorl.cli.config import experiment_of_words
from evorl.reproduction import papers
from evorl.reproduction.best_so_far import best_at, first_at
from evorl.reproduction.loop import Request, first_job, reproduce
from evorl.reproduction.table import Results

RESULTS = Path(__file__).parents[1] / "benchmarks" / "suite" / "results"


def run(place: Path, seed: int, fitness: list[float], last: float) -> SimpleNamespace:
    place.mkdir(parents=True)
    own = {"parents": [], "role": "", "birth": 0, "genes": {}}
    lines = [{"id": n, **own, "objectives": {"fitness": x}, "step": 10 * (n + 1)} for n, x in enumerate(fitness)]
    (place / "population.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = {"ec.objectives": ["fitness"]}
    return SimpleNamespace(directory=place, seed=seed, config=config, result={"fitness": last})


def test_searches_are_told_with_the_steps_to_the_target(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / "random" / "0", 0, [-900, -700, -800], -720),
        run(tmp_path / "random" / "1", 1, [-900, -150, -100], -120),
        run(tmp_path / "asha" / "0", 0, [-190, -500, -600], -205),
        run(tmp_path / "asha" / "1", 1, [-900, -200, -100], -160),
    ]
    assert analyse(Results("ci", [], {})) is None
    found = analyse(Results("ci", runs, {}))
    assert found is not None
    assert [[name, seeds, count, there, steps] for name, seeds, count, _, there, steps in found.rows] == [
        ["random", "2", "3", "1 of 2", "-"], ["asha", "2", "3", "2 of 2", "15"]
    ]  # fmt: skip
    assert found.data["runs"]["random"][0]["best"] == [-900, -700, -700]
    assert measured(found.data).startswith("random -420") and "asha" in measured(found.data)


def test_the_best_up_to_a_step_has_the_evaluation_of_that_step() -> None:
    run = {"steps": [10, 20, 30], "best": [-900.0, -150.0, -100.0]}
    assert [best_at(run, step, -2000) for step in (9, 10, 19, 20, 99)] == [-2000, -900, -900, -150, -100]
    assert first_at(run, -150) == 20 and first_at(run, -150, beyond=True) == 30 and first_at(run, 0) is None


def test_all_searches_have_the_same_words_and_steps_of_a_training() -> None:
    parts = TABLE.profiles["ci"].parts
    made = {part.name: experiment_of_words(first_job(part.words)) for part in parts}
    assert {name.partition("/")[2] for name in made} == {*SEARCHES}
    first = made["searches/random"]
    for one in made.values():
        assert (one.rl, one.mdp, one.budget, one.eval) == (first.rl, first.mdp, first.budget, first.eval)
        assert one.ec.genes == first.ec.genes and one.ec.slots == 1
    assert {one.ec.train_steps for name, one in made.items() if "pbt" not in name} == {32_768}


def test_the_page_of_asha_has_the_steps_of_the_table() -> None:
    told = json.loads((RESULTS / "searches.json").read_text())["rows"]
    page = (RESULTS.parents[2] / "docs" / "evolvers" / "asha.md").read_text()
    assert [row[5] for row in told if row[0] != "pbt"] == re.findall(r"after\s(\d+,\d+)", page)


@pytest.mark.slow
def test_a_tiny_comparison_is_reported(tmp_path: Path) -> None:
    asked = Request("suite/searches", "tiny", (), tmp_path / "runs", tmp_path / "out", False)
    reproduce(papers.table("suite/searches"), asked)
    told = json.loads((tmp_path / "out" / "searches.json").read_text())
    assert [row[0] for row in told["rows"]] == [*SEARCHES]
