"""Population logs: reading, lineage, fronts, tables and figures."""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.analysis.figures import render, render_inset
from evorl.analysis.groups import Group
from evorl.analysis.lineage import find_lineage
from evorl.analysis.map_elites_figure import Descriptor, descriptors, elites
from evorl.analysis.population import (
    LoggedIndividual,
    PopulationLog,
    individual_rows,
    population_logs,
    read_population_log,
    read_search_log,
    sampled_rows,
)
from evorl.analysis.population_figures import population_figures
from evorl.analysis.runs import RunRecord
from evorl.record.terminal import TABLE_COLUMNS, TABLE_ROWS, individuals_table
from evorl.report import main
from evorl.util.files import write_json

CONFIG = {"ec.population": 3, "ec.genes.rl.lr.log": True}


def line(number: int, fitness: float | None = 1.0, **fields: Any) -> dict[str, Any]:
    usual = {"parents": [], "role": "initial", "birth": 0, "genes": {"rl.lr": 1e-3}, "cost": 10}
    made = {
        "results": {"fitness": fitness},
        "objectives": {"fitness": fitness},
        "step": 10 * (number + 1),
        "seconds": 0.5,
    }
    return {"id": number, **usual, **made, **fields}


def write(directory: Path, lines: Sequence[dict[str, Any]], after: str = "", config: Any = CONFIG) -> RunRecord:
    directory.mkdir(parents=True)
    (directory / "population.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines) + after)
    return RunRecord(directory=directory, config=config)


def make_log(lines: Sequence[dict[str, Any]], **config: Any) -> PopulationLog:
    run = RunRecord(directory=Path("x"), config=CONFIG | config)
    return PopulationLog(
        run=run, individuals=[LoggedIndividual(**{**one, "parents": tuple(one["parents"])}) for one in lines]
    )


def points(values: Sequence[Sequence[float | None]], **fields: Any) -> PopulationLog:
    """Individuals with these objectives."""
    names = [f"f{k + 1}" for k in range(len(values[0]))]
    return make_log([line(n, results={}, objectives=dict(zip(names, row, strict=True)), **fields)
                   for n, row in enumerate(values)])  # fmt: skip


# ------------------------------------------------------------------ reading


def test_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    lines = [line(0), line(1, 2.5, parents=[0], role="child", birth=1)]
    found = read_population_log(write(tmp_path / "run", lines, after='{"id": 2, "par'))
    assert found is not None and found.damaged == 0 and [one.id for one in found.individuals] == [0, 1]
    assert found.fitness.tolist() == [1.0, 2.5] and found.steps.tolist() == [10, 20]
    assert found.genes == {"rl.lr": [1e-3, 1e-3]} and found.individuals[1].parents == (0,)


@pytest.mark.parametrize("bad", ["{", '"x"', '{"id": 1}', '{"id": "a"}', "\xff"])
def test_a_damaged_line_is_counted_and_left_out(bad: str, tmp_path: Path) -> None:
    found = read_population_log(write(tmp_path / "run", [line(0)], after=f"{bad}\n" + json.dumps(line(2)) + "\n"))
    assert found is not None and found.damaged == 1 and [one.id for one in found.individuals] == [0, 2]


def test_a_run_without_a_population_has_none(tmp_path: Path) -> None:
    assert read_population_log(RunRecord(directory=tmp_path, config={})) is None
    assert read_population_log(write(tmp_path / "begun", [], after='{"id"')) is None


def test_failed_individuals_are_never_best() -> None:
    found = make_log([line(0, 1.0), line(1, None), line(2, 4.0), line(3, 3.0)])
    assert math.isnan(found.fitness[1]) and found.objectives[1].tolist() == [-math.inf]
    assert found.table_rows == [2, 3, 0]


@given(st.lists(st.none() | st.floats(-5, 5), min_size=1, max_size=30), st.integers(1, 8))
def test_the_mean_is_of_the_last_generation(values: list[float | None], size: int) -> None:
    x = np.array([math.nan if value is None else value for value in values])
    mean = make_log([line(n) for n in range(len(values))], **{"ec.population": size}).generation_mean(x)
    for k in range(len(values)):
        known = [value for value in values[max(0, k + 1 - size) : k + 1] if value is not None]
        assert mean[k] == pytest.approx(np.mean(known), abs=1e-12) if known else math.isnan(mean[k])


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=25), st.sets(st.integers(0, 24))
)
def test_front_has_the_non_dominated_individuals(values: list[tuple[int, int]], failed: set[int]) -> None:
    found = points([(None, None) if row in failed else value for row, value in enumerate(values)])
    sound = {value for row, value in enumerate(values) if row not in failed}
    best = {v for v in sound if not any(u != v and u[0] >= v[0] and u[1] >= v[1] for u in sound)}
    assert sorted(best) == [values[row] for row in found.front]
    first = [min(r for r, v in enumerate(values) if v == value and r not in failed) for value in sorted(best)]
    assert first == list(found.front)  # of equal ones


def test_a_table_has_the_best_or_the_front() -> None:
    one = make_log([line(n, float(n % 20)) for n in range(40)])
    assert [row["fitness"] for row in individual_rows(one)] == sorted([float(n % 20) for n in range(40)], reverse=True)[
        :10
    ]
    front = points([(float(n), float(-n)) for n in range(40)])
    assert len(individual_rows(front)) == 40 and len(sampled_rows(front)) == 10
    assert [sampled_rows(front)[0]["individual"], sampled_rows(front)[-1]["individual"]] == ["0", "39"]
    many = make_log([line(0, genes={f"x{k}": 0.5 for k in range(30)})])
    assert "x29" in individual_rows(many)[0] and "x29" not in sampled_rows(many)[0] and "…" in sampled_rows(many)[0]


# ------------------------------------------------------------------ lineage

PBT = [
    line(0, 1.0), line(1, 2.0), line(2, 3.0),
    line(3, 4.0, parents=[2], role="exploited", birth=3),  # 0 gave way to 2
    line(4, 2.5, parents=[1], role="goes on", birth=3), line(5, 5.0, parents=[2], role="goes on", birth=3),
    line(6, 6.0, parents=[5], role="exploited", birth=6),  # 3 gave way: it was told of first
    line(7, 7.0, parents=[5], role="exploited", birth=6),  # 4 did
    line(8, 8.0, parents=[5], role="goes on", birth=6),
]  # fmt: skip


def test_each_member_has_a_line_that_its_replacements_continue() -> None:
    found = find_lineage(make_log(PBT))
    assert found is not None and found.members and found.lines == 3
    assert [life.line for life in found.lifespans] == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert [life.began for life in found.lifespans] == [0, 0, 0, 30, 30, 30, 60, 60, 60]
    assert [life.row for life in found.descent(7)] == [7, 5, 2]


def test_member_without_a_successor_yet_keeps_its_line() -> None:
    """As an asynchronous run ends: 0 goes on as 3, who still trains; 4 took over 1."""
    taken, goes_on = line(4, parents=[0], role="exploited", birth=2), line(5, parents=[4], role="goes on", birth=3)
    found = find_lineage(make_log([line(0), line(1), taken, line(2), goes_on]))
    assert found is not None and [(one.row, one.line) for one in found.lifespans] == [
        (0, 0),
        (1, 1),
        (3, 2),
        (2, 1),
        (4, 1),
    ]


def test_descent_is_that_of_the_newest_and_branches_do_not_cross() -> None:
    rng = np.random.default_rng(0)
    lines = [line(n) for n in range(20)]
    lines += [line(n, parents=[int(rng.integers(n - 15, n))], role="child") for n in range(20, 400)]
    found = find_lineage(make_log(lines))
    assert found is not None and not found.members and found.lines <= 50
    at = {life.row: life for life in found.lifespans}
    assert {*range(350, 400)} <= {*at}
    for life in found.lifespans:
        assert life.parent == (lines[life.row]["parents"] or [None])[0]
        below = [one.line for one in found.lifespans if one.parent == life.row]
        assert not below or life.line == (min(below) + max(below)) / 2
    leaves = [life for life in found.lifespans if not any(one.parent == life.row for one in found.lifespans)]
    assert sorted(leaf.line for leaf in leaves) == list(range(found.lines))
    for root in [life for life in found.lifespans if life.parent is None]:  # a family owns a stretch of its own
        own = sorted(leaf.line for leaf in leaves if found.descent(leaf.row)[-1] is root)
        assert own == list(np.arange(own[0], own[0] + len(own)))


def test_without_parents_there_is_no_tree() -> None:
    assert find_lineage(make_log([line(n, role="perturbed") for n in range(5)])) is None
    assert find_lineage(make_log([line(3, parents=[1], role="child")])) is None  # whose parent the file does not have


# ------------------------------------------------------------------ pictures


def kinds(found: PopulationLog) -> dict[str, Any]:
    return {name: figure for name, _, figure in population_figures(found)}


@pytest.mark.slow_cases(but=("found0-names0", "found1-names1", "found6-names6"))
@pytest.mark.parametrize(("found", "names"), [
    (make_log(PBT), {"fitness", "genes", "family"}),
    (make_log([line(0, None, genes={})]), {"fitness"}),
    (make_log([line(0, genes={"rl.net": "a", "mdp.on": True}), line(1, genes={"rl.net": "b", "mdp.on": False})]),
     {"fitness", "genes"}),
    (points([(1, 2), (2, 1), (None, None)], genes={}), {"fitness", "front"}),
    (points([(None, None)], genes={}), {"fitness"}),
    (points([(1, 2, 3), (3, 2, 1)], genes={}), {"fitness", "front"}),
    (points([(1, 2, 3, 4, 5), (5, 4, 3, 2, 1)], genes={}), {"fitness", "front"}),
])  # fmt: skip
def test_every_population_has_its_pictures(found: PopulationLog, names: set[str]) -> None:
    drawn = kinds(found)
    assert {*drawn} == names
    for figure in drawn.values():
        assert render(figure)["png"].startswith(b"\x89PNG") and b"<svg" in render_inset(figure)


def test_a_gene_is_logarithmic_where_its_range_is() -> None:
    both = [line(n, genes={"rl.lr": 10.0**-n, "rl.entropy_coef": 0.01 * n}) for n in range(1, 5)]
    axes = kinds(make_log(both))["genes"].axes
    assert {one.get_title(loc="left"): one.get_yscale() for one in axes[:2]} == {
        "rl.lr": "log",
        "rl.entropy_coef": "linear",
    }


def test_the_front_and_its_history_are_where_the_numbers_say() -> None:
    found = points([(0.0, 0.0), (1.0, 0.5), (0.5, 1.0), (2.0, 2.0)])
    axes = kinds(found)["front"].axes[0]
    last = axes.lines[-1]
    assert last.get_xydata().tolist() == [[2.0, 2.0]]
    assert [0.0, 0.0] in axes.lines[0].get_xydata().tolist()  # where it began


def test_arrows_are_where_weights_moved() -> None:
    axes = kinds(make_log(PBT))["family"].axes[0]
    dots = {tuple(place) for place in axes.lines[0].get_xydata()}
    assert len(axes.patches) == 3
    assert {patch._posA_posB[0] for patch in axes.patches} <= dots


def test_lowest_gene_panels_label_the_horizontal_axis() -> None:
    many = [line(n, genes=dict.fromkeys("abcd", n / 9)) for n in range(6)]
    assert [axes.get_xlabel() for axes in kinds(make_log(many))["genes"].axes[:4]] == ["", *["environment steps"] * 3]


GRID = {"ec.descriptors.lazy": [0.0, 1.0, 4], "ec.descriptors.mdp.speed": [0, 10, 2]}


def behaved(number: int, fitness: float | None, lazy: float | None, speed: float) -> dict[str, Any]:
    return line(number, fitness, results={"fitness": fitness, "lazy": lazy}, genes={"mdp.speed": speed})


def test_each_cell_of_an_archive_shows_its_fittest() -> None:
    people = [
        *(behaved(0, 1.0, 0.1, 1.0), behaved(1, 3.0, 0.2, 4.0), behaved(2, 2.0, 0.0, 0.0)),  # of one cell
        *(behaved(3, 5.0, 1.0, 10.0), behaved(4, 4.0, 7.0, 99.0)),  # at the upper edge, and beyond it
        *(behaved(5, -1.0, -3.0, 6.0), behaved(6, None, 0.6, 6.0), behaved(7, 9.0, None, 6.0)),
    ]
    found = make_log(people, **GRID)
    nan = math.nan
    np.testing.assert_array_equal(elites(found, descriptors(found)), [[3, -1], [nan, nan], [nan, nan], [nan, 5]])
    axes = kinds(found)["archive"].axes[0]
    assert "3 of 8" in axes.get_title(loc="left")
    shown = axes.collections[0].get_array()
    np.testing.assert_array_equal(np.ma.filled(shown.astype(float), nan), [[3, nan, nan, nan], [-1, nan, nan, 5]])


def test_the_cells_of_an_archive_are_those_of_pyribs() -> None:
    ribs = pytest.importorskip("ribs.archives")
    for low, high, cells in ((0.0, 1.0, 100), (-3.0, 0.3, 7), (0.0, 1000.0, 10)):
        edges = np.linspace(low, high, cells + 1)
        values = np.concatenate([edges, *(edges + sign * size for sign in (-1, 1) for size in (1e-12, 1e-8, 1e-3))])
        theirs = ribs.GridArchive(solution_dim=1, dims=[cells], ranges=[(low, high)]).index_of(values[:, None])
        np.testing.assert_array_equal(Descriptor("lazy", low, high, cells).cell(values), theirs)


@pytest.mark.parametrize("count", [1, 3])
def test_an_archive_of_one_descriptor_is_a_line_and_of_more_than_two_its_best(count: int) -> None:
    more = {"ec.descriptors.fitness": [0.0, 4.0, 4]}
    config = {"ec.descriptors.lazy": GRID["ec.descriptors.lazy"]} if count == 1 else GRID | more
    figure = kinds(make_log([behaved(n, float(n), 0.1 * n, 1.0) for n in range(4)], **config))["archive"]
    assert render(figure)["png"].startswith(b"\x89PNG")
    assert len(figure.axes) == (1 if count == 1 else 2)  # the second is the scale of colours
    if count == 3:
        assert np.ma.filled(figure.axes[0].collections[0].get_array(), -1)[0].tolist() == [2.0, 3.0, -1.0, -1.0]


@pytest.mark.slow
def test_large_populations_are_drawn_fast_and_small() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(25_000, 2))
    genes = [{f"x{k}": float(v) for k, v in enumerate(row)} for row in rng.random((25_000, 30))]
    lines = [line(n, results={}, objectives={"f1": float(v[0]), "f2": float(v[1])}, genes=genes[n],
                  parents=[n - 100] if n >= 100 else [], role="child") for n, v in enumerate(values)]  # fmt: skip
    began = time.process_time()
    sizes = {
        name: len(render_inset(figure)) for name, figure in kinds(make_log(lines, **{"ec.population": 100})).items()
    }
    assert {*sizes} == {"fitness", "front", "genes", "family"} and max(sizes.values()) < 3_000_000
    assert time.process_time() - began < 20


# ------------------------------------------------------------------ the report


def test_a_report_shows_each_groups_fittest_population(tmp_path: Path) -> None:
    for number, (lr, fitness) in enumerate([(0.1, 1.0), (0.1, 9.0), (0.2, 3.0)]):
        run = write(tmp_path / "runs" / str(number), [line(n, fitness + n) for n in range(4)]).directory
        (run / ".hydra").mkdir()
        (run / ".hydra" / "config.yaml").write_text(
            f"mdp:\n  _target_: x.Pong\nec:\n  _target_: x.PBT\n  population: 3\n  lr: {lr}\nseed: {number}\n"
        )
        (run / "metrics.jsonl").write_text('{"step": 40, "time": 1.0, "population/best": 4.0}\n')
        (run / "result.json").write_text(json.dumps({"steps": 40, "seconds": 1.0, "fitness": fitness, "eval": {}}))
    out = tmp_path / "report"
    assert main([str(tmp_path / "runs"), f"out={out}"]) == 0
    with (out / "population.csv").open(newline="") as file:
        best = list(csv.DictReader(file))
    assert [Path(row["run"]).name for row in best] == ["1"] * 4 + ["2"] * 4
    assert best[0]["fitness"] == "12.0" and best[0]["rl.lr"] == "0.001"
    assert {"population0_fitness.png", "population1_genes.svg"} <= {path.name for path in out.iterdir()}
    page = (out / "index.html").read_text()
    assert page.count('class="population"') == 2 and "the best individuals" in page
    assert "| individual | role |" in (out / "table.md").read_text()


SEARCH_FILE = {
    "hydra.sweeper": {"direction": "minimize", "evolver": {"kind": "NSGA2", "population": 3}},
    "genes": {"+rl.lr": {"name": "+rl.lr", "low": 1e-4, "high": 1e-2, "log": True}},
    "words": {"mdp": "pong"},
}


def write_search(place: Path, worlds: Sequence[str]) -> None:
    """A search of a job in each of these worlds, the last of which has failed; each is a child of the one before."""
    place.mkdir(parents=True)
    (place / "search.json").write_text(json.dumps(SEARCH_FILE))
    (place / "sweep.json").write_text(json.dumps({"jobs": {}}))
    lines = []
    for n, world in enumerate(worlds):
        run = place / str(n) / ".hydra"
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(f"mdp:\n  _target_: x.{world}\nrl:\n  lr: {10.0 ** -(2 + n)}\nseed: 1\n")
        worth = None if n == len(worlds) - 1 else float(n)
        asked = {"-1*fitness": None if worth is None else -worth, "length": None if worth is None else 2 * worth}
        results = {} if worth is None else {"fitness": worth, "length": 2 * worth, "dull": None}
        lines.append(line(n, parents=[n - 1] if n else [], role="child", genes={"rl.lr": 10.0 ** -(2 + n)},
                          objectives=asked, results=results, job=str(n), batch=n))  # fmt: skip
    (place / "population.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))


def test_search_is_drawn_like_a_population(tmp_path: Path) -> None:
    place, out = tmp_path / "sweep", tmp_path / "report"
    write_search(place, ["Pong"] * 4)
    found = read_search_log(place)
    assert found is not None and (found.ranked_by, found.size) == ("-1*fitness", 3)
    assert found.fitness.tolist()[:3] == [0.0, -1.0, -2.0] and math.isnan(found.fitness[3])  # less is better there
    drawn = kinds(found)
    assert {*drawn} == {"fitness", "front", "keys", "genes", "family"}
    assert drawn["genes"].axes[0].get_yscale() == "log"
    (axes,) = drawn["keys"].axes
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()) == ("rl.lr", "-1*fitness", "log")
    jobs, failed, best = ([[*map(float, xy)] for xy in one.get_xydata()] for one in axes.lines)
    assert jobs == [[1e-2, 0.0], [1e-3, -1.0], [1e-4, -2.0]]
    assert best == [[1e-2, 0.0]] and [x for x, _ in failed] == [1e-5]
    assert main([str(place), f"out={out}"]) == 0
    assert {f"population_{name}.png" for name in drawn} <= {path.name for path in out.iterdir()}
    with (out / "population.csv").open(newline="") as file:
        best = list(csv.DictReader(file))
    assert {(row["run"], row["job"], row["parents"]) for row in best} == {
        (str(place), "0", ""), (str(place), "1", "0"), (str(place), "2", "1")
    }  # fmt: skip
    page = (out / "index.html").read_text()
    assert "Search: 3 of the 3 individuals of the front" in page and "Each individual is one job" in page


def test_a_job_that_was_stopped_and_went_on_is_drawn_once(tmp_path: Path) -> None:
    place = tmp_path / "sweep"
    write_search(place, ["Pong"] * 4)
    rows = [json.loads(line) for line in (place / "population.jsonl").read_text().splitlines()]
    rows.append({**rows[1], "id": 9, "parents": [1], "objectives": {**rows[1]["objectives"], "-1*fitness": -7.0}})
    (place / "population.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_search_log(place)
    assert found is not None and found.rows_of_promoted_jobs == [[1, 4]]
    assert found.newest_of_jobs.tolist() == [True, False, True, True, True]
    (axes,) = kinds(found)["keys"].axes
    line, jobs, before, _, best = ([[*map(float, xy)] for xy in one.get_xydata()] for one in axes.lines)
    assert line == [[1e-3, -1.0], [1e-3, -7.0]] and before == [[1e-3, -1.0]] and best == [[1e-2, 0.0]]
    assert jobs == [[1e-2, 0.0], [1e-4, -2.0], [1e-3, -7.0]]


@pytest.mark.slow
def test_several_searches_are_distinguished_and_shown_with_their_world(tmp_path: Path) -> None:
    write_search(tmp_path / "a" / "sweep", ["Pong", "Duel", "Pong"])
    write_search(tmp_path / "b" / "sweep", ["Pong", "Pong"])
    assert main([str(tmp_path / "a"), str(tmp_path), f"out={tmp_path / 'report'}"]) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    duel, pong = page.index("<h2>Duel"), page.index("<h2>Pong")
    first, second = (page.index(f"Search {tmp_path / name / 'sweep'}: ") for name in "ab")
    assert duel < first < pong < second and page.count('class="population"') == 2
    assert main([str(tmp_path / "a" / "sweep" / "0"), f"out={tmp_path / 'one'}"]) == 0
    assert not (tmp_path / "one" / "population.csv").exists()  # of one job that was asked for, no more is shown


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"hydra.sweeper": {}}'])
def test_a_search_whose_request_is_damaged_is_drawn_without_it(text: str, tmp_path: Path) -> None:
    write_search(tmp_path / "sweep", ["Pong", "Pong"])
    (tmp_path / "sweep" / "search.json").write_text(text)
    found = read_search_log(tmp_path / "sweep")
    assert found is not None and found.size == 1 and len(found.individuals) == 2


def test_at_most_six_populations_are_shown(tmp_path: Path) -> None:
    runs = [write(tmp_path / str(n), [line(0)]) for n in range(9)]
    assert len(population_logs([Group({"ec.lr": n}, [run]) for n, run in enumerate(runs)])) == 6


def test_table_of_individuals_is_limited() -> None:
    found = individuals_table([{"individual": n, "fitness": 1.23456, "role": "goes [on]"} for n in range(20)])
    assert found.row_count == TABLE_ROWS and [column.header for column in found.columns] == [
        "individual",
        "fitness",
        "role",
    ]
    assert next(found.columns[1].cells) == "1.235" and next(found.columns[2].cells) == r"goes \[on]"
    assert len(individuals_table([{str(n): n for n in range(30)}]).columns) == TABLE_COLUMNS


def test_a_result_with_the_name_of_a_column_has_one_of_its_own() -> None:
    """The length of a duel in seconds is no time of the evaluation."""
    log = make_log([line(0, results={"fitness": 1.0, "seconds": 42.0, "step": 7.0}, genes={"cost": 3.0})])
    (row,) = individual_rows(log)
    assert (row["seconds"], row["step"], row["cost"]) == (42.0, 7.0, 3.0)
    assert (row["evaluation seconds"], row["evaluation step"], row["evaluation cost"]) == (0.5, 10, 10)


def test_a_damaged_search_or_file_does_not_stop_a_report(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "search"
    run = write(place, [line(0)])
    for damaged in ({"hydra.sweeper": 3, "genes": []}, {"hydra.sweeper": {"evolver": [1]}}, []):
        write_json(place / "search.json", damaged)
        log = read_search_log(place)
        assert log is not None and len(log.individuals) == 1
    assert not caplog.messages
    file = place / "population.jsonl"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert read_search_log(place) is None and read_population_log(run) is None
    assert [message.partition(":")[0] for message in caplog.messages] == ["left out", "left out"]
