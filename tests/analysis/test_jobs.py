"""The jobs of an evolution with a shared critic: reading, busy shares, the table of work and the figures."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import go
from hypothesis import given
from hypothesis import strategies as st

from evorl.analysis.figures import render, render_inset
from evorl.analysis.job_figures import MAX_WORKERS, distribution_figure, work_figures
from evorl.analysis.jobs import ACTIVITIES, CRITIC, EVOLVED, TRAIN, TRAINED, JobLog, LoggedJob, read_job_log, work_rows
from evorl.analysis.runs import RunRecord, Series
from evorl.report import main

CONFIG = {"ec.slots": 3, "ec.population": 10}


def job(number: int, kind: str, worker: int, began: float, trained: float, ended: float, **fields: Any) -> LoggedJob:
    return LoggedJob(
        job=number,
        kind=kind,
        worker=worker,
        step=10 * (number + 1),
        began=began,
        trained=trained,
        ended=ended,
        **fields,
    )


def log(jobs: Sequence[LoggedJob], **more: Any) -> JobLog:
    return JobLog(run=RunRecord(directory=Path("x"), config=CONFIG, **more), jobs=jobs)


TWO = [
    job(0, "random", 0, 0.0, 0.0, 2.0),
    job(1, "critic", 1, 1.0, 5.0, 5.0, gradient_steps=100),
    job(2, "trained", 0, 2.0, 5.0, 6.0, gradient_steps=40),
    job(4, "mean", 1, 8.0, 8.0, 9.0),  # 3 s after its last
    job(3, "evolved", 0, 8.0, 8.0, 10.0),  # 2 s after its last; its answer came last
]
"""Worker 0 is busy for 8 of 10 s, worker 1 for 5 of 8 s."""


def line(one: LoggedJob) -> dict[str, Any]:
    names = ("job", "kind", "worker", "step", "began", "trained", "ended", "gradient_steps")
    return {name: getattr(one, name) for name in names} | {"individual": 1, "critic": None, "objectives": None}


def write(directory: Path, jobs: Sequence[LoggedJob], after: str = "") -> RunRecord:
    text = "".join(json.dumps(line(one)) + "\n" for one in jobs) + after
    (directory / "jobs.jsonl").write_text(text, encoding="latin-1")
    return RunRecord(directory=directory, config=CONFIG)


# ------------------------------------------------------------------ reading


def test_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    found = read_job_log(write(tmp_path, TWO, after='{"job": 5, "kind": "evol'))
    assert found is not None and found.damaged == 0 and found.jobs == TWO


@pytest.mark.parametrize("bad", [
    "{", '"x"', '{"job": 1}', "\xff",
    *(json.dumps(line(job(9, "evolved", 0, 11.0, 11.0, 12.0)) | change)
      for change in ({"kind": "?"}, {"step": 1 << 60}, {"ended": None}, {"ended": 3.0}, {"trained": 99.0})),
])  # fmt: skip
def test_a_damaged_line_is_counted_and_left_out(bad: str, tmp_path: Path) -> None:
    found = read_job_log(write(tmp_path, TWO[:2], after=f"{bad}\n" + json.dumps(line(TWO[2])) + "\n"))
    assert found is not None and found.damaged == 1 and found.jobs == TWO[:3]


@pytest.mark.parametrize("text", [None, "", "\n", '{"job"', "{}\n"])
def test_a_run_without_jobs_has_none(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "jobs.jsonl").write_text(text)
    assert read_job_log(RunRecord(directory=tmp_path, config={})) is None


# ------------------------------------------------------------------ numbers


def test_seconds_of_hand_made_jobs() -> None:
    found = log(TWO)
    assert found.span == (0.0, 10.0) and found.workers == [0, 1] and found.slots == 3
    assert found.spans.tolist() == [[0.0, 10.0], [1.0, 9.0]]
    seconds = found.seconds(np.array([0.0, 4.0, 10.0]))
    assert seconds.shape == (2, 2, len(ACTIVITIES))
    expected = np.zeros_like(seconds)
    expected[0, 0] = [0, 2, 0, 0, 0, 2]
    expected[1, 0] = [0, 1, 1, 2, 0, 0]
    expected[0, 1] = [3, 0, 0, 0, 0, 0]
    expected[1, 1] = [1, 0, 0, 0, 1, 0]
    np.testing.assert_allclose(seconds, expected)
    np.testing.assert_allclose(found.presence(np.array([0.0, 4.0, 10.0])), [[4, 3], [6, 5]])


def test_the_table_of_work() -> None:
    uncounted = Series(*np.array([[20.0], [9.0], [7.0]]))
    whole, first, second = work_rows(log(TWO, series={"train/uncounted_steps": uncounted}))
    names = ("busy share", "playing (s)", "training actors (s)", "training critics (s)", "waiting (s)")
    assert [whole[name] for name in names] == pytest.approx([13 / 18, 6, 3, 4, 5])
    assert [first[name] for name in names] == pytest.approx([0.8, 5, 3, 0, 2])
    assert [second[name] for name in names] == pytest.approx([5 / 8, 1, 0, 4, 3])
    names = ("gradient steps of actors", "gradient steps of critics", "counted steps", "uncounted steps", "jobs")
    assert [whole[name] for name in names] == [40, 100, 50, 7.0, 5]
    assert first["counted steps"] is None and list(first) == list(whole)


def test_a_single_worker_has_one_row() -> None:
    (row,) = work_rows(log(TWO[:1]))
    assert row["worker"] == "all" and row["busy share"] == 1.0


@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 50), st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=20),
    st.lists(st.floats(-5, 80), min_size=2, max_size=8, unique=True),
)
def test_bins_have_the_parts_of_jobs_that_lie_in_them(rows: list[tuple[int, float, float, float]], cuts: Any) -> None:
    jobs = [job(n, "trained", worker, b, b + t, b + t + p) for n, (worker, b, t, p) in enumerate(rows)]
    edges, found = np.sort(cuts), log(jobs)
    seconds = found.seconds(edges)
    for k, worker in enumerate(found.workers):
        own = [one for one in jobs if one.worker == worker]
        for low, high, here in zip(edges[:-1], edges[1:], seconds[:, k], strict=True):
            train = sum(max(min(one.trained, high) - max(one.began, low), 0.0) for one in own)
            play = sum(max(min(one.ended, high) - max(one.trained, low), 0.0) for one in own)
            assert here[[TRAIN, TRAINED]] == pytest.approx([train, play], abs=1e-9)
            assert here[[CRITIC, EVOLVED]].tolist() == [0.0, 0.0]


# ------------------------------------------------------------------ pictures


def many(workers: int, jobs: int, length: float = 1.0) -> list[LoggedJob]:
    """Jobs of all kinds, one after the other on each worker, with pauses."""
    random, made, clock = np.random.default_rng(0), list[LoggedJob](), np.zeros(workers)
    for number in range(jobs):
        worker = int(np.argmin(clock))
        kind = str(random.choice(["trained", "evolved", "mean", "critic"]) if number > jobs // 20 else "random")
        train, play = length * random.uniform(0.5, 1.5), length * random.uniform(0.1, 0.4)
        began = clock[worker] + length * random.uniform(0, 0.2)
        trained = began + (train if kind in ("trained", "critic") else 0.0)
        clock[worker] = trained + (0.0 if kind == "critic" else play)
        made.append(job(number, kind, worker, began, trained, clock[worker]))
    return made


@pytest.mark.slow_cases(but=("jobs3",))
@pytest.mark.parametrize("jobs", [
    TWO, TWO[:1], [job(0, "evolved", 0, 1.0, 1.0, 1.0)], many(3, 40), many(4, 5000), many(30, 300, 100.0),
])  # fmt: skip
def test_every_run_has_its_pictures(jobs: list[LoggedJob]) -> None:
    drawn = {name: figure for name, _, figure in work_figures(log(jobs))}
    assert list(drawn) == ["timeline", "utilisation"]
    for figure in drawn.values():
        assert render(figure)["png"].startswith(b"\x89PNG") and b"<svg" in render_inset(figure)


def titles(jobs: list[LoggedJob]) -> list[str]:
    timeline = next(figure for name, _, figure in work_figures(log(jobs)) if name == "timeline")
    return [axes.get_title(loc="left") for axes in timeline.axes]


def test_a_long_run_is_drawn_whole_and_in_part() -> None:
    assert titles(TWO) == ["Every job"]
    whole, part = titles([job(n, "evolved", 0, float(n), float(n), n + 1.0) for n in range(400)])
    assert whole == "The whole run, share of each 2.5 s" and part == "Every job from second 180 to 220"


def test_a_bar_is_where_its_job_was() -> None:
    timeline = next(figure for name, _, figure in work_figures(log(TWO)) if name == "timeline")
    boxes = [path.get_extents() for bars in timeline.axes[0].collections for path in bars.get_paths()]
    corners = {(round(box.x0, 3), round(box.x1, 3), round((box.y0 + box.y1) / 2, 3)) for box in boxes}
    assert {(2.0, 5.0, 0.0), (5.0, 6.0, 0.0), (1.0, 5.0, 1.0), (8.0, 9.0, 1.0)} <= corners


def test_only_the_first_workers_are_drawn() -> None:
    for _, _, figure in work_figures(log(many(MAX_WORKERS + 6, 400))):
        (legend,) = figure.legends
        assert legend.get_title().get_text() == f"The first {MAX_WORKERS} of {MAX_WORKERS + 6} workers"


def test_the_distribution_is_drawn_where_individuals_are_trained() -> None:
    steps = np.array([10.0, 20.0])
    share, sigma = Series(steps, steps, np.array([0.0, 0.5])), Series(steps, steps, np.array([1e-3, 1.0]))
    run = RunRecord(directory=Path("x"), config={}, series={"population/sigma": sigma})
    assert distribution_figure(run) is None
    named = {"population/trained_share": share, "population/elites_trained": share, "population/sigma": sigma}
    for names, lines in ((tuple(named), 2), (("population/trained_share",), 1)):
        run = RunRecord(directory=Path("x"), config={}, series={name: named[name] for name in names})
        figure = distribution_figure(run)
        assert figure is not None and len(figure.axes[0].lines) == lines
        assert render(figure)["png"].startswith(b"\x89PNG")


# ------------------------------------------------------------------ a run


@pytest.mark.slow
def test_the_report_of_a_run_that_was_resumed(tmp_path: Path) -> None:
    words = (
        *("mdp=pendulum", "mdp.time_limit=50", "rl=td3", "ec=acem_rl", "rl.net.hidden=[8]", "rl.batch=16"),
        *("eval.every=0", "eval.episodes=2", "rl.warm_up=200", "rl.capacity=1000", "ec.critic_ratio=0.2"),
        *("ec.actor_ratio=0.1", "ec.population=4", "ec.slots=3", "ec.critic_job=30", "record.tensorboard=false"),
    )
    place = tmp_path / "run"
    assert go(*words, "budget.steps=700", f"hydra.run.dir={place}") == 0
    assert go(f"resume={place}", "budget.steps=1500") == 0
    assert main([str(place), f"out={tmp_path / 'report'}"]) == 0
    for name in ("distribution", "timeline", "utilisation"):
        assert (tmp_path / "report" / f"population_{name}.png").is_file()
    (row,) = csv.DictReader((tmp_path / "report" / "work.csv").read_text().splitlines())
    assert int(row["counted steps"]) == 1500 and float(row["uncounted steps"]) == 0.0
    assert 0.0 < float(row["busy share"]) <= 1.0
    found = read_job_log(RunRecord(directory=place, config={}))
    assert found is not None and int(row["jobs"]) == len(found.jobs)
    s = found.stretches
    assert (s.ended[:-1] <= s.began[1:] + 2e-3).all()  # one worker does one thing, also after the stop
    page, tables = (tmp_path / "report" / "index.html").read_text(), (tmp_path / "report" / "table.md").read_text()
    assert "Work of the workers" in page and "what each worker did by seconds" in page
    assert "## Population: work of the workers" in tables
