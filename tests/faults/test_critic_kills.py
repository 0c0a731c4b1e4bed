"""Evolutions with a shared critic whose workers and drivers are killed: only the job at hand is done again, and no bit
of a synchronous search, or of a repeated asynchronous one, is another."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import RayRun, Run, kill_actor, kill_driver, kill_worker, replaced, stop_worker
from critic_runs import ASYNCHRONOUS, QUICK, SYNCHRONOUS, WORKERS, bits, evolved, jobs
from evolution_runs import journal
from harness import fingerprint, go, newest, start

from evorl.population import critic_jobs
from evorl.record import checkpoint

pytestmark = pytest.mark.slow

CASES = {**SYNCHRONOUS, **{name: words for name, words in ASYNCHRONOUS.items() if name != "p_cem_rl"}}
CLUSTER = (*WORKERS, "cluster.deadline_s=5")


def check_journal(run: Path) -> None:
    """Each job that was given out is done once, or in flight; each individual is told once."""
    lines, state = jobs(run), newest(run)["run"]
    done, flying = [one["job"] for one in lines], [one["number"] for one in state["in_flight"].values()]
    assert sorted([*done, *flying]) == list(range(state["jobs"]))
    told = [one["individual"] for one in lines if one["kind"] in ("evolved", "trained")]
    assert [one["id"] for one in journal(run)] == told
    assert len(set(told)) == len(told)
    assert state["steps"] == lines[-1]["step"] == state["learner"]["replay"]["count"]


def check_repeated(run: Path, place: Path) -> None:
    """Here, from its journal alone, an asynchronous run comes to the same bits."""
    assert go(f"replay={run}", "cluster=local", f"hydra.run.dir={place}") == 0
    assert jobs(place) == jobs(run)
    assert bits(place) == bits(run)


def number_of_open_files() -> int:
    gc.collect()  # a map is closed with the last array in it
    return len(os.listdir("/proc/self/fd"))


def until_checkpoints(number: int, run: Path, over: Callable[[], object]) -> None:
    while len(checkpoint.steps(run)) < number:
        assert not over()
        time.sleep(0.005)


# ------------------------------------------------------------------ workers


@pytest.mark.parametrize("case", ["cem_rl", "p_cem_rl", "aes_rl"])
def test_a_worker_that_dies_in_the_middle_of_training_does_only_its_job_again(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, died, open_files = tmp_path / "begun", tmp_path / "died", number_of_open_files()

    def dying(name: str, every: int) -> None:
        real = getattr(critic_jobs, name)

        def train(learner: Any, theta: Any, reading: Any, *rest: Any) -> Any:
            job = f"{name}{rest}\n"
            with begun.open("a") as file:
                file.write(job)
            again = begun.read_text().splitlines(keepends=True).count(job) > 1
            if not again and begun.read_text().count(name) % every == 0:
                real(learner, theta * 0.5, reading, *rest)  # whoever takes over must see nothing of this
                with died.open("a") as file:
                    file.write(job)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(learner, theta, reading, *rest)

        monkeypatch.setattr(critic_jobs, name, train)

    dying("train_critic", 3)
    dying("train_actors", 4)
    there = evolved(tmp_path / "there", *CASES[case], *CLUSTER)
    monkeypatch.undo()
    lines, deaths = begun.read_text().splitlines(), died.read_text().splitlines()
    assert {line.partition("(")[0] for line in deaths} == {"train_critic", "train_actors"}
    wanted, done = Counter([*set(lines), *deaths]), Counter(lines)
    assert not done - wanted
    # what is in flight when an asynchronous run ends is not done again; a generation ends whole
    assert (wanted - done).total() <= (0 if case in SYNCHRONOUS else len(newest(there)["run"]["in_flight"]))
    assert number_of_open_files() <= open_files  # shared memory is a file without a name
    check_journal(there)
    if case in SYNCHRONOUS:
        assert bits(there) == bits(evolved(tmp_path / "here", *CASES[case]))
    else:
        check_repeated(there, tmp_path / "again")


def bother(it: Run, kills: int, stops: int, ways: Sequence[Callable[..., int]] = (kill_worker,)) -> None:
    """Kill and stop workers at random moments of a run, then let it finish; nothing of it is left."""
    assert it.until_rows(1), it.said()
    draw, done = random.Random(7), 0
    for number in range(stops):
        done = 0
        while done < kills // stops:
            assert not it.over, (number, done, it.said())
            time.sleep(draw.uniform(0, 0.3))
            done += draw.choice(ways)(it, draw)
        stop_worker(it, draw)
    assert not it.over, "it was over before all were killed"
    it.finish()
    assert replaced(it.directory) >= kills // 2


LONG = {name: (*CASES[name][:-1], "checkpoint.every=1000", "budget.steps=40000") for name in CASES}


@pytest.mark.fault
@pytest.mark.parametrize("case", ["cem_rl", "p_cem_rl", "p_cem_rl, sac"])
def test_many_killed_and_stopped_workers_cost_a_synchronous_search_no_bit(
    case: str, run: Callable[..., Run], tmp_path: Path
) -> None:
    it = run(*QUICK, *LONG[case], *CLUSTER)
    bother(it, kills=20, stops=4)
    alone = evolved(tmp_path / "alone", *LONG[case])
    assert jobs(it.directory) == jobs(alone)
    assert bits(it.directory) == bits(alone)


@pytest.mark.fault
@pytest.mark.parametrize("case", ["aes_rl", "aes_rl, bounded"])
def test_many_killed_and_stopped_workers_cost_an_asynchronous_search_only_their_jobs(
    case: str, run: Callable[..., Run], tmp_path: Path
) -> None:
    it = run(*QUICK, *LONG[case], *CLUSTER)
    bother(it, kills=20, stops=4)
    check_journal(it.directory)
    check_repeated(it.directory, tmp_path / "again")


@pytest.mark.fault
@pytest.mark.parametrize("case", ["p_cem_rl", "aes_rl"])
def test_the_same_on_ray(case: str, run: Callable[..., RayRun], tmp_path: Path) -> None:
    it = run(*QUICK, *LONG[case], "cluster=ray", "cluster.workers=2", "cluster.deadline_s=20")
    bother(it, kills=8, stops=1, ways=(kill_worker, kill_actor))
    check_journal(it.directory)
    if case in SYNCHRONOUS:
        assert bits(it.directory) == bits(evolved(tmp_path / "alone", *LONG[case]))
    else:
        check_repeated(it.directory, tmp_path / "again")


# ------------------------------------------------------------------ drivers


@pytest.mark.parametrize("case", ["cem_rl", "aes_rl"])
def test_a_killed_driver_goes_on_from_its_last_checkpoint(case: str, tmp_path: Path) -> None:
    words = (*CASES[case], "checkpoint.every=200")
    driver = start(*QUICK, *words, "hydra.run.dir=run", cwd=tmp_path)
    until_checkpoints(2, tmp_path / "run", lambda: driver.poll() is not None)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    assert not newest(tmp_path / "run")["recorder"]["steps"].get("over")
    assert go(f"resume={tmp_path / 'run'}") == 0
    alone = evolved(tmp_path / "alone", *words)
    assert jobs(tmp_path / "run") == jobs(alone)
    assert journal(tmp_path / "run") == journal(alone)
    assert fingerprint(tmp_path / "run") == fingerprint(alone)


@pytest.mark.fault
@pytest.mark.parametrize("case", ["p_cem_rl", "aes_rl", "aes_rl, bounded"])
def test_drivers_killed_again_and_again_leave_one_history(case: str, run: Callable[..., Run], tmp_path: Path) -> None:
    """With their workers at work: the journal is cut back to the checkpoint, and what was in flight is given again."""
    it, draw, lost = run(*QUICK, *LONG[case], *CLUSTER), random.Random(case), 0
    for _ in range(6):
        until_checkpoints(1, it.directory, lambda: it.over)
        assert it.until_rows(draw.randrange(5, 60)), it.said()
        kill_driver(it)
        assert it.driver.wait() == -signal.SIGKILL
        it.check_gone()
        lost += len(jobs(it.directory)) > newest(it.directory)["run"]["journal_lines"]
        it.go_on()
    assert lost >= 3
    it.finish()
    check_journal(it.directory)
    if case in SYNCHRONOUS:
        assert bits(it.directory) == bits(evolved(tmp_path / "alone", *LONG[case]))
    else:
        check_repeated(it.directory, tmp_path / "again")


# ------------------------------------------------------------------ damaged checkpoints


@pytest.mark.parametrize(
    "words", [ASYNCHRONOUS["aes_rl"], ("rl=td3", "rl.horizon=8", "rl.samples_per_step=8", "budget.steps=500")]
)
def test_a_damaged_checkpoint_with_a_replay_costs_time_but_no_bit(
    words: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever file it is, also one that is gone: the run goes on from the checkpoint before."""
    usual = [word for word in QUICK if "ec=aes_rl" in words or not word.startswith("ec.")]
    alone = tmp_path / "alone"
    assert go(*usual, *words, "checkpoint.every=200", f"hydra.run.dir={alone}") == 0
    last = checkpoint.steps(alone)[-1]
    for file in sorted(path.name for path in (alone / "checkpoints" / str(last)).iterdir()):
        again = tmp_path / file
        shutil.copytree(alone, again)
        (again / "result.json").unlink()
        damaged = again / "checkpoints" / str(last) / file
        if file.startswith("rows"):
            os.truncate(damaged, damaged.stat().st_size - 10)
        else:
            damaged.unlink()
        assert go(f"resume={again}") == 0
        assert f"checkpoint {last} is damaged" in caplog.text
        caplog.clear()
        assert fingerprint(again) == fingerprint(alone)
