"""Searches over jobs that really train: with Hydra's launcher and Ray's, killed, poisoned, and reported on."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, fingerprint, go, newest
from sweeping import Sweep, told, trained_once

from evorl.cli import config
from evorl.jobs.search_loop import TOLD
from evorl.rl import evaluation
from evorl.util import command

TAG = "{python} {clients}/python/tag.py"
SOUP = "RuntimeError: the soup was off"
LR = "rl.lr=tag(log,interval(1e-4,1e-2))"
SEARCH = ("hydra/sweeper=evorl", LR)
PBT = (
    *(*SEARCH, "hydra.sweeper.evolver=pbt", "hydra.sweeper.evolver.population=3", "hydra.sweeper.jobs=8"),
    *("hydra.sweeper.evolver.inherit_optimizer=true", "hydra.sweeper.evolver.worst=0.4"),
    *("mdp.dose=0", "+mdp.length=20", "budget.steps=1000", "seed=3"),
)


def of(sweep: Path, job: str) -> dict[str, Any]:
    return config.read_run_config(sweep / job, "run")


@pytest.mark.slow_cases(but=("random",))
@pytest.mark.parametrize("name", ["random", "nsga2", "cma_es"])
def test_cartpole_is_searched(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "PROGRESS_PERIOD_S", 0.0)
    words = ("--multirun", "mdp=cartpole", *QUICK, *SEARCH, f"hydra.sweeper.evolver={name}", "hydra.sweeper.jobs=6")
    more = ("hydra.sweeper.evolver.population=4", "rl.passes=range(1,4)", "rl.normalize_inputs=true,false")
    out = io.StringIO()
    with redirect_stdout(out):
        assert go(*words, *more, "budget.steps=256", f"hydra.sweep.dir={tmp_path}") == 0
    assert "evaluating: 0 of " in capsys.readouterr().err, "the replays of the best jobs say how far they are"
    rows = told(tmp_path)
    assert [row["job"] for row in rows] == [str(n) for n in range(6)]
    for row in rows:
        rl = of(tmp_path, row["job"])["rl"]
        assert row["genes"] == {f"rl.{key}": rl[key] for key in ("lr", "passes", "normalize_inputs")}
        result = json.loads((tmp_path / row["job"] / "result.json").read_bytes())
        assert row["objectives"] == {"fitness": result["fitness"]}
    standing = sorted(rows, key=lambda row: -row["objectives"]["fitness"])
    best = json.loads((tmp_path / "best.json").read_bytes())
    assert best["candidates"] == [row["job"] for row in standing[:2]]  # twice two episodes are for no more
    named = next(row for row in rows if row["job"] == best["job"])
    assert best["job"] in best["candidates"] and best["first_fitness"] == named["objectives"]["fitness"]
    assert best["fitness"] == best["heldout"]["mean"] and best["heldout"]["episodes"] == 2
    assert best["luck"] == pytest.approx(best["first_fitness"] - best["fitness"]) and best["selected_by"] == "held-out"
    said = f"best: job {best['job']}, fitness {best['fitness']:.4g} ("
    assert said in out.getvalue() and f"its own evaluation: rl.passes={named['genes']['rl.passes']}" in out.getvalue()
    assert f"6 of 6 jobs evaluated: {command.line('report', str(tmp_path))}" in out.getvalue()


@pytest.fixture(scope="module")
def bred(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    sweep = Sweep(tmp_path_factory.mktemp("bred"), *PBT)
    assert sweep.run() == (0, "")
    return sweep


def test_pbt_hands_on_what_its_jobs_learned(bred: Sweep) -> None:
    rows = told(bred.directory)
    assert len(rows) == 8 and all(row["parents"] for row in rows[3:])
    assert all(trained_once(bred.directory / row["job"]) for row in rows)
    for row in rows:
        data = of(bred.directory, row["job"])
        parent = (
            str(bred.directory / str(row["parents"][0])) if row["parents"] else None
        )  # here an id is a job's number
        assert (data["init"], data["init_optimizer"]) == (parent, parent is not None)
        assert (data["budget"]["steps"], row["step"]) == (1000, sum(one["cost"] for one in rows[: row["id"] + 1]))
    updates = [newest(bred.directory / row["job"])["run"]["learner"]["optimizer"]["t"].item() for row in rows]
    assert updates[3] == 2 * updates[0] and updates[6] == 3 * updates[0]  # Adam counts on


@pytest.mark.learn
def test_pbt_hands_on_the_critics_of_learners_with_a_replay(tmp_path: Path) -> None:
    """Each job fills a replay of its own; actor and critics go on where those of the parent stopped."""
    words = (
        *("--multirun", *SEARCH, "mdp=pendulum", "mdp.time_limit=50", "rl=td3", "rl.net.hidden=[8]", "rl.batch=8"),
        *("rl.slots=2", "rl.horizon=8", "rl.samples_per_step=8", "rl.warm_up=100", "rl.capacity=1000", *QUICK[:3]),
        *("hydra.sweeper.evolver=pbt", "hydra.sweeper.evolver.population=2", "hydra.sweeper.jobs=4"),
        *("hydra.sweeper.evolver.inherit_optimizer=true", "budget.steps=304", f"hydra.sweep.dir={tmp_path}"),
    )
    assert go(*words) == 0
    rows = told(tmp_path)
    assert len(rows) == 4 and [len(row["parents"]) for row in rows] == [0, 0, 1, 1]
    learners = [newest(tmp_path / row["job"])["run"]["learner"] for row in rows]
    for row, learner in zip(rows, learners, strict=True):
        assert learner["replay"]["count"] == 304
        for name in ("optimizer", "critic_optimizer"):
            steps = learner[name]["t"].item()
            before = learners[row["parents"][0]][name]["t"].item() if row["parents"] else 0
            assert steps - before == learners[0][name]["t"].item() > 0


def same(sweep: Sweep, other: Sweep) -> None:
    """Whether two searches proposed, told and trained the same, to the bit."""
    assert told(sweep.directory) == told(other.directory)
    for row in told(sweep.directory):
        assert fingerprint(sweep.directory / row["job"]) == fingerprint(other.directory / row["job"])


def killed(sweep: Sweep, jobs: int) -> None:
    """Begin it, and end it with SIGKILL once so many jobs have a checkpoint."""
    process = sweep.start()
    ends = time.monotonic() + 120
    while not (sweep.directory / str(jobs) / "checkpoints" / "latest").exists():
        assert process.poll() is None and time.monotonic() < ends, (sweep.place / "err").read_text()
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(60) == -9


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.fault), 5])
def test_a_killed_search_goes_on_as_if_nothing_had_been(bred: Sweep, tmp_path: Path, jobs: int) -> None:
    sweep = Sweep(tmp_path, *PBT)
    killed(sweep, jobs)
    kept = sweep.kept()
    assert len(sweep.finished()) < 8
    assert sweep.run() == (0, "")
    assert kept.items() <= sweep.kept().items()
    same(sweep, bred)
    kept = sweep.kept()
    assert sweep.run() == (0, "") and sweep.kept() == kept  # and once more there is nothing to do


@pytest.mark.slow
def test_what_failed_is_told_and_the_search_goes_on(tmp_path: Path) -> None:
    words = (*SEARCH, "mdp.dose=range(0,3)", "+mdp.poisonous=[2]", "budget.steps=500", "seed=1")
    sweep = Sweep(tmp_path, *words, "hydra.sweeper.parallel=3", "hydra.sweeper.jobs=9")
    sweep.poison.touch()
    code, said = sweep.run()
    lost = [row["job"] for row in told(sweep.directory) if "failed" in row]
    assert 0 < len(lost) < 9 and lost == [row["job"] for row in told(sweep.directory) if row["genes"]["mdp.dose"] == 2]
    assert code == 0 and sweep.reasons() == dict.fromkeys(lost, SOUP)
    assert said.splitlines()[-len(lost) - 1 :] == [
        f"evorl: {len(lost)} of 9 jobs failed, and have no fitness:", *(f"  {job}: {SOUP}" for job in lost)
    ]  # fmt: skip
    sweep.poison.unlink()
    before, last = told(sweep.directory), {job for job in lost if int(job) >= 6}
    assert sweep.run()[0] == 0
    after = told(sweep.directory)
    assert [row["job"] for row in after if "failed" in row] == [job for job in lost if job not in last]
    assert after[:6] == before[:6] and {*sweep.reasons()} == {*lost} - last


@pytest.mark.fault
def test_where_all_fail_the_search_ends_and_can_go_on(tmp_path: Path) -> None:
    words = (*SEARCH, "mdp.dose=2", "+mdp.poisonous=[2]", "budget.steps=500")
    sweep = Sweep(tmp_path, *words, "hydra.sweeper.parallel=2", "hydra.sweeper.jobs=5")
    sweep.poison.touch()
    code, said = sweep.run()
    head = f"evorl: all of 2 jobs failed, and so the search ends; with hydra.sweep.dir={sweep.directory} they run again"
    assert code == 1 and said.splitlines()[-3:] == [head, f"  0: {SOUP}", f"  1: {SOUP}"]
    assert not (sweep.directory / TOLD).exists()
    sweep.poison.unlink()
    assert sweep.run()[0] == 0
    assert sweep.finished() == list("01234") and sweep.reasons() == {}


@pytest.mark.slow
def test_its_report_shows_every_job_and_what_was_searched(bred: Sweep, tmp_path: Path) -> None:
    from evorl.report import main

    assert main([str(bred.directory), f"out={tmp_path / 'report'}"]) == 0
    with (tmp_path / "report" / "runs.csv").open(newline="") as file:
        rows = {Path(row["run"]).name: row for row in csv.DictReader(file)}
    for row in told(bred.directory):
        shown = rows[row["job"]]
        assert (shown["state"], float(shown["rl.lr"])) == ("finished", row["genes"]["rl.lr"])
        assert shown["init"] == (str(row["parents"][0]) if row["parents"] else "null")
    pictures = {f"population_{name}.png" for name in ("fitness", "genes", "family")}
    assert pictures <= {path.name for path in (tmp_path / "report").iterdir()}


@pytest.mark.fault
def test_on_ray_children_inherit_the_same_bits(bred: Sweep, tmp_path: Path, short_path: Path) -> None:
    sweep = Sweep(tmp_path, *PBT, launcher="ray")
    sweep.env["RAY_TMPDIR"] = str(short_path)
    assert sweep.start().wait(300) == 0, (tmp_path / "err").read_text()
    same(sweep, bred)


@pytest.mark.fault
def test_a_search_killed_on_ray_goes_on_there(bred: Sweep, tmp_path: Path, short_path: Path) -> None:
    sweep = Sweep(tmp_path, *PBT, launcher="ray")
    sweep.env["RAY_TMPDIR"] = str(short_path)
    killed(sweep, 4)
    kept = sweep.kept()
    assert 0 < len(sweep.finished()) < 8
    assert sweep.start().wait(300) == 0, (tmp_path / "err").read_text()
    assert kept.items() <= sweep.kept().items()
    same(sweep, bred)


@pytest.mark.slow_cases(but=("word",))
@pytest.mark.parametrize(
    "commands", [pytest.param(f"'{TAG}'", id="word"), pytest.param(f"'{TAG}','{TAG} '", id="gene")]
)
def test_policies_in_games_of_typed_commands_are_replayed(commands: str, tmp_path: Path) -> None:
    words = (
        "--multirun",
        "mdp=remote",
        f"mdp.command={commands}",
        "mdp.opponent=game",
        *QUICK,
        "rl.minibatch=32",
        *SEARCH,
    )
    more = ("rl.slots=2", "hydra.sweeper.jobs=2", "hydra.sweeper.evolver.population=2", "budget.steps=64")
    assert go(*words, *more, f"hydra.sweep.dir={tmp_path}") == 0
    assert json.loads((tmp_path / "best.json").read_bytes())["selected_by"] == "held-out"
