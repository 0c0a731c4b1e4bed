"""Searches that stop jobs early: promoted jobs go on to the bit, also after kills, failures and damage."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import QUICK, experiment_of, fingerprint, go, newest
from sweeping import Sweep, told, trained_once

from evorl.ec.asha import ASHA as Asha
from evorl.ec.space import Gene, Space
from evorl.jobs import job as jobs
from evorl.jobs import search_loop
from evorl.jobs import sweep as sweeps
from evorl.jobs.identity import OtherRun
from evorl.jobs.promotion import STEPS, budget_of, result_after, sound_result_after
from evorl.jobs.search import Keys, Search
from evorl.jobs.search_loop import TOLD
from evorl.util.errors import BadRequest
from evorl.util.files import write_json

LR = "rl.lr=tag(log,interval(1e-4,1e-2))"
ASHA = (
    *("hydra/sweeper=evorl", LR, "hydra.sweeper.evolver=asha", "hydra.sweeper.evolver.eta=2"),
    *("hydra.sweeper.evolver.R=4", "hydra.sweeper.jobs=10", "hydra.sweeper.parallel=2"),
    *("mdp.dose=0", "+mdp.length=20", "budget.steps=2048", "seed=3"),
)
HYPERBAND = (
    *("hydra/sweeper=evorl", LR, "hydra.sweeper.evolver=hyperband", "hydra.sweeper.evolver.eta=2"),
    *("hydra.sweeper.evolver.R=4", "hydra.sweeper.jobs=9", "mdp.dose=0", "+mdp.length=20", "budget.steps=2048"),
)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    sweep = Sweep(tmp_path_factory.mktemp("asha"), *ASHA)
    assert sweep.run() == (0, "")
    return sweep


@pytest.mark.slow
def test_promoted_jobs_have_the_bits_of_jobs_that_were_never_stopped(stopped: Sweep, tmp_path: Path) -> None:
    rows = told(stopped.directory)
    assert len(rows) == 10 and {row["role"] for row in rows} == {"initial 1/4", "promoted 2/4", "promoted 4/4"}
    (job,) = {row["job"] for row in rows if row["role"] == "promoted 4/4"}
    words = [word for word in stopped.words if not word.startswith("hydra")]
    lr = next(row["genes"]["rl.lr"] for row in rows if row["job"] == job)
    words = [word for word in words if word not in ("--multirun", LR)]
    assert go(*words, f"rl.lr={lr}", "budget.steps=2048", f"hydra.run.dir={tmp_path / 'whole'}") == 0
    assert trained_once(stopped.directory / job)
    whole, went_on = (newest(place)["run"] for place in (tmp_path / "whole", stopped.directory / job))
    assert whole["steps"] == went_on["steps"] == 2048
    for name, tensor in whole["learner"]["policy"].items():
        assert np.array_equal(tensor, went_on["learner"]["policy"][name]), name


@pytest.mark.slow
def test_steps_are_counted_once_and_results_at_each_budget_stay(stopped: Sweep) -> None:
    rows, spent = told(stopped.directory), dict[str, int]()
    for row in rows:
        spent[row["job"]] = spent.get(row["job"], 0) + row["cost"]
        assert row["results"]["steps"] == spent[row["job"]] == row["cost"] * (1 + bool(row["parents"]))
        until = {"1/4": 512, "2/4": 1024, "4/4": 2048}[row["role"].split()[1]]
        result = result_after(stopped.directory / row["job"], until)
        assert result is not None and (result["steps"], result["fitness"]) == (until, row["objectives"]["fitness"])
    assert rows[-1]["step"] == sum(spent.values())
    assert result_after(stopped.directory / rows[0]["job"], 4096) is None
    best = json.loads((stopped.directory / "best.json").read_bytes())
    newest_of = {row["job"]: row for row in rows}
    assert best["jobs"] == len(newest_of) and best["first_fitness"] == newest_of[best["job"]]["objectives"]["fitness"]
    kept = stopped.kept()
    assert stopped.run() == (0, "") and stopped.kept() == kept  # there is nothing to do


def killed_when(sweep: Sweep, ready: Callable[[], bool]) -> None:
    process = sweep.start()
    ends = time.monotonic() + 200
    while not ready():
        assert process.poll() is None and time.monotonic() < ends, (sweep.place / "err").read_text()
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(60) == -9


def same(sweep: Sweep, other: Sweep) -> None:
    assert told(sweep.directory) == told(other.directory)
    for job in {row["job"] for row in told(sweep.directory)}:
        assert fingerprint(sweep.directory / job) == fingerprint(other.directory / job)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["promoted", pytest.param("promoted again", marks=pytest.mark.fault)])
def test_a_search_killed_while_a_job_is_promoted_goes_on(stopped: Sweep, tmp_path: Path, when: str) -> None:
    sweep = Sweep(tmp_path, *ASHA)
    many = 1 if when == "promoted" else 2
    killed_when(sweep, lambda: max(map(len, map(asides, sweep.directory.glob("[0-9]"))), default=0) == many)
    assert sweep.run() == (0, "")
    same(sweep, stopped)


def asides(job: Path) -> list[Path]:
    return [*job.glob("result.*.json")]


@pytest.mark.slow
def test_a_longer_search_goes_on_and_a_lost_journal_is_written_again(stopped: Sweep, tmp_path: Path) -> None:
    """The results of jobs that went on are those that they set aside."""
    sweep = Sweep(tmp_path)
    sweep.words = [word.replace(str(stopped.directory), str(sweep.directory)) for word in stopped.words]
    shutil.copytree(stopped.directory, sweep.directory)
    lines = (sweep.directory / TOLD).read_bytes().splitlines(keepends=True)
    (sweep.directory / TOLD).write_bytes(b"".join(lines[:3]) + b"{damaged")
    kept = sweep.kept()
    assert sweep.run() == (0, "")
    assert told(sweep.directory) == told(stopped.directory)
    changed = {name for name in kept if kept[name] != sweep.kept()[name]}
    assert not [name for name in changed if "checkpoints" in name or "result" in name]
    assert sweep.run("hydra.sweeper.jobs=12") == (0, "")
    assert told(sweep.directory)[:10] == told(stopped.directory) and len(told(sweep.directory)) == 12


@pytest.mark.slow
def test_hyperband_promotes_the_best_of_each_rung(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, *HYPERBAND)
    assert sweep.run() == (0, "")
    rows = told(sweep.directory)
    assert [row["role"] for row in rows] == [
        *["initial 1/4"] * 4, *["promoted 1/2"] * 2, "promoted 1/1", *["initial 1/2"] * 2,
    ]  # fmt: skip
    rung = sorted(rows[:4], key=lambda row: (-row["objectives"]["fitness"], row["id"]))
    assert [row["job"] for row in rows[4:6]] == [row["job"] for row in rung[:2]]


@pytest.mark.slow
def test_within_a_run_individuals_train_on(tmp_path: Path) -> None:
    words = ("mdp=cartpole", *QUICK, "ec=asha", "ec.eta=2", "ec.R=4", "ec.population=2", "ec.episodes=2")
    words += ("ec.train_steps=1024", "+ec.genes.rl.lr={low:1e-4,high:1e-2,log:true}", "ec.asynchronous=false")
    assert go(*words, "budget.steps=6000", f"hydra.run.dir={tmp_path / 'run'}") == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "population.jsonl").read_bytes().splitlines()]
    by_id = {row["id"]: row for row in rows}
    promoted = [row for row in rows if row["parents"]]
    assert {row["role"] for row in rows} == {"initial 1/4", "promoted 2/4", "promoted 4/4"} and len(promoted) > 2
    for row in promoted:
        assert row["genes"] == by_id[row["parents"][0]]["genes"]
    trained: dict[str, set[int]] = {}
    for row in rows:
        trained.setdefault(row["role"], set()).add(row["cost"] - int(2 * row["results"]["length"]))
    assert trained == {"initial 1/4": {256}, "promoted 2/4": {256}, "promoted 4/4": {512}}


def run_of(place: Path, steps: int | None) -> Path:
    (place / ".hydra").mkdir(parents=True)
    (place / ".hydra" / "config.yaml").write_text(f"budget: {{steps: {'null' if steps is None else steps}}}\n")
    return place


def result(steps: int) -> dict[str, Any]:
    return {"steps": steps, "seconds": 1.0, "fitness": float(steps), "eval": {}}


def test_which_result_belongs_to_a_budget(tmp_path: Path) -> None:
    job = run_of(tmp_path / "job", 400)
    assert budget_of(job) == 400 and budget_of(tmp_path) is None and budget_of(run_of(tmp_path / "b", None)) is None
    for steps in (112, 208):  # whole batches
        write_json(job / f"result.{steps}.json", result(steps))
    (job / "result.damaged.json").write_text("{")
    assert [(result_after(job, n) or {}).get("steps") for n in (100, 200, 400, 800)] == [112, 208, None, None]
    write_json(job / "result.json", result(400))
    assert [(result_after(job, n) or {}).get("steps") for n in (100, 200, 400, 800)] == [112, 208, 400, None]
    assert [(sound_result_after(job, n) or {}).get("steps") for n in (100, 200, 400, 800)] == [112, 208, 400, None]
    assert (result_after(job, 300) or {})["steps"] == 208  # another limit ended it
    lost = run_of(tmp_path / "lost", 400)
    with pytest.raises(OtherRun, match="job lost has gone on to 400 steps, and its result after 100 is lost"):
        sound_result_after(lost, 100)


@pytest.mark.parametrize(
    ("of_run", "of_search", "key", "meant", "line"),
    [
        (
            ("ec=asha", "ec.eta=3", "ec.R=4"), ASHA[:6], "hydra.sweeper.evolver.eta", 2,
            "no configuration trains to the end: the last rung has 3 of R=4 units; R=9 is a power of eta=3",
        ),
        (
            ("ec=hyperband", "ec.eta=2", "ec.R=4", "ec.slots=5"), HYPERBAND[:6], "hydra.sweeper.parallel", 4,
            "at most 4 configurations train at once, those of a rung, and not 5; asha waits for no rung",
        ),
    ],
)  # fmt: skip
def test_runs_and_searches_say_what_is_probably_not_meant(
    of_run: tuple[str, ...],
    of_search: tuple[str, ...],
    key: str,
    meant: int,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keys = (*of_run, "+ec.genes.rl.lr=[1e-4,1e-2]")
    assert [*jobs._notices(experiment_of("mdp=cartpole", "rl=ppo", *keys), keys)] == [line]

    def stop(*_: Any, **__: Any) -> None:
        raise BadRequest("enough")

    monkeypatch.setattr(sweeps, "check_jobs", stop)
    words = ("--multirun", "mdp=cartpole", *QUICK, *of_search, "budget.steps=2048", f"hydra.sweep.dir={tmp_path}")
    for more in (0, 1):
        assert go(*words, f"{key}={meant + more}") == 2
        out, err = capsys.readouterr()
        assert out.splitlines().count(line) == more and err == "evorl: enough\n"


def begin(place: Path, number: int, words: list[str]) -> None:
    """What stands there once a job trains."""
    shutil.rmtree(place / str(number), ignore_errors=True)
    run_of(place / str(number), int(next(word for word in words if word.startswith(STEPS)).partition("=")[2]))


@pytest.mark.parametrize("batches", range(1, 9))
def test_a_failed_batch_is_repeated_until_a_later_job_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    """Also where the later jobs are promoted ones, which have folders already."""

    def outcome(job: Path, steps: int) -> tuple[dict[str, float], str]:
        x = float(int(job.name) * 7919 % 101) + steps / 1000
        if (int(job.name), steps) == lost:
            return {}, "the worker was lost"
        return {"fitness": x, "return": x, "steps": float(steps), "seconds": 1.0}, ""

    monkeypatch.setattr(search_loop, "job_outcome", outcome)
    evolution, genes = Asha(population=2, eta=2, R=4), Space((Gene("rl.lr", 0.0, 1.0),))
    search = Search(keys=Keys(jobs=60, parallel=2), evolution=evolution, space=genes, words={}, seed=1, steps=4000)
    state, lost = search_loop.SearchState(search, tmp_path), (-1, -1)
    for batch in range(batches):
        words = state.next() or []
        for number, own in zip(state.numbers, words, strict=True):
            begin(tmp_path, number, own)
        if batch == batches - 1:
            lost = (state.numbers[-1], budget_of(tmp_path / str(state.numbers[-1])) or 0)
        assert state.take()
    assert len(search_loop.SearchState(search, tmp_path).rows) == len(state.rows) - 2
    later = state.next() or []
    for number, own in zip(state.numbers, later, strict=True):
        shutil.copytree(tmp_path, place := tmp_path.parent / f"{tmp_path.name}_{number}")
        begin(place, number, own)
        assert search_loop.SearchState(search, place).rows == state.rows


@pytest.mark.slow
def test_without_early_stopping_a_larger_budget_is_another_job(tmp_path: Path) -> None:
    words = ("--multirun", "mdp=cartpole", *QUICK, "rl.lr=1e-3,1e-4", f"hydra.sweep.dir={tmp_path}")
    with redirect_stdout(io.StringIO()):
        assert go(*words, "budget.steps=128") == 0
        assert go(*words, "budget.steps=256") == 2
