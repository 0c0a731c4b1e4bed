"""Whole runs on `cluster=processes` whose processes are killed, stopped and interrupted with real signals.

They end with the bits of a run that was left alone, and leave nothing behind.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_runs import (
    Run,
    foreground,
    kill_all,
    kill_driver,
    kill_group,
    kill_one,
    kill_worker,
    kill_workers,
    replaced,
    settings,
    stop_worker,
    undisturbed,
)
from cluster_victims import relatives, send
from harness import ROOT, fingerprint, start, title

SLOWER = ("cluster.deadline_s=1.5",)


def kill_supervisor(it: Run, draw: random.Random) -> int:
    return kill_one(it.supervisors(), draw)


@pytest.mark.slow
def test_workers_and_supervisors_are_killed_and_stopped_and_no_bit_changes(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    words = settings("pendulum", 40_000, *SLOWER)
    it, draw = run(*words), random.Random(0)
    for act in (kill_worker, kill_supervisor, kill_workers, stop_worker, kill_all, kill_worker):
        assert it.until_rows(draw.randrange(1, 6))
        assert act(it, draw) > 0
    it.finish()
    assert replaced(it.directory) >= 6
    assert fingerprint(it.directory) == fingerprint(undisturbed(tmp_path, words))


@pytest.mark.fault
@pytest.mark.parametrize("world", ["pong", "pendulum", "duel"])
def test_fifty_kills_and_ten_stops_at_random_moments(world: str, run: Callable[..., Run], tmp_path: Path) -> None:
    words = settings(world, 400_000 if world != "duel" else 320_000, *SLOWER)
    it, draw = run(*words), random.Random(world)
    kills = stops = 0
    while (kills < 50 or stops < 10) and not it.over:
        time.sleep(draw.uniform(0, 0.2))
        if draw.random() < 0.2:
            stops += stop_worker(it, draw)
        else:
            act = draw.choices([kill_worker, kill_workers, kill_supervisor, kill_all], [6, 2, 1, 1])[0]
            kills += act(it, draw)
    assert kills >= 50 and stops >= 10, it.said()
    it.finish()
    assert fingerprint(it.directory) == fingerprint(undisturbed(tmp_path, words))


@pytest.mark.fault
def test_helpers_are_killed_and_no_bit_changes(run: Callable[..., Run], tmp_path: Path) -> None:
    """Those of W&B; TensorBoard's is a thread of the driver."""

    def helpers() -> set[int]:
        return {pid for pid in it.others() if b"wandb" in title(pid)}

    words = settings("pendulum", 100_000, "record.tensorboard=true", "record.wandb=offline")
    it, draw = run(*words), random.Random(0)
    assert it.until_rows(3) and it.until(helpers)
    send(signal.SIGKILL, helpers())
    assert it.until_rows(3) and kill_all(it, draw) >= 4
    assert it.driver.wait(300) == 0, it.said()
    it.check_gone()
    assert it.said().count("metrics.jsonl has every row") == 1  # what W&B's end costs
    assert fingerprint(it.directory) == fingerprint(undisturbed(tmp_path, [*words, "record.wandb=disabled"]))


# ------------------------------------------------------------------ a driver that stands still


@pytest.mark.fault
def test_who_was_stopped_with_the_driver_or_without_it_is_not_killed(run: Callable[..., Run]) -> None:
    it = run(*settings("pendulum", 40_000, "cluster.deadline_s=1"))
    assert it.until_rows(3)
    for victims in ({it.driver.pid}, {it.driver.pid} | it.others()):
        send(signal.SIGSTOP, victims)
        time.sleep(1.6)  # longer than the deadline
        send(signal.SIGCONT, victims)
        assert it.until_rows(3)
    it.finish()
    assert replaced(it.directory) == 0 and "replaced" not in it.said()


# ------------------------------------------------------------------ a driver that is killed


def kill_driver_and_supervisor(it: Run) -> None:
    send(signal.SIGKILL, {it.driver.pid, min(it.supervisors())})


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing(run: Callable[..., Run]) -> None:
    kills = (kill_driver, kill_group, kill_driver_and_supervisor)
    for it, kill in [(run(*settings("pong", 10**9)), kill) for kill in kills]:
        assert it.until_rows(2) and len(it.others()) == 4
        kill(it)
        it.driver.wait()
        it.check_gone()


@pytest.mark.fault
def test_a_driver_killed_at_random_moments_leaves_nothing_and_goes_on(run: Callable[..., Run], tmp_path: Path) -> None:
    """Forty moments: of start-up, with workers on their way or half of them forked, of training, of saving."""
    words = settings("pendulum", 300_000, "checkpoint.every=2000")
    it, draw, begun = run(*words), random.Random(0), 0
    for _ in range(40):
        early = draw.random() < 0.5
        if early:
            it.until(lambda: bool(it.others()))  # the first supervisor is there; what follows takes some 50 ms
            time.sleep(draw.uniform(0, 0.06))
        else:
            it.until_rows(draw.randrange(1, 20))
        begun += len(it.others()) > 0
        draw.choice([kill_driver, kill_group])(it)
        it.driver.wait()
        it.check_gone()
        it.go_on()
    assert begun >= 30
    it.finish()
    assert fingerprint(it.directory) == fingerprint(undisturbed(tmp_path, words))


WITHOUT_WORKERS = """
import os, signal
from evorl.cluster.processes.launcher import ProcessLauncher
print(ProcessLauncher(print, 2).directory, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.fault
def test_drivers_killed_before_their_first_worker_leave_nothing(short_path: Path) -> None:
    """Both supervisors have only waited, and each would kill the other if it hangs: one has to be first."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(short_path)}
    for _ in range(8):
        drivers = [
            subprocess.Popen([sys.executable, "-c", WITHOUT_WORKERS], stdout=subprocess.PIPE, text=True, env=env)
            for _ in range(8)
        ]
        said = [driver.communicate()[0].strip() for driver in drivers]
        assert all(str(short_path) in one for one in said)
        ends = time.monotonic() + Run.farewell_s
        while left := [*short_path.iterdir(), *relatives(short_path)]:
            assert time.monotonic() < ends, left
            time.sleep(0.01)


# ------------------------------------------------------------------ a driver that is asked to stop


def everyone(it: Run, number: signal.Signals) -> None:
    """What a service manager or a scheduler does."""
    send(number, {it.driver.pid} | it.others())


@pytest.mark.fault
def test_interrupted_it_saves_and_resumes_exactly(run: Callable[..., Run], tmp_path: Path) -> None:
    words = settings("pong", 30_000)
    it = run(*words)
    for ask, number in ((foreground, signal.SIGINT), (everyone, signal.SIGTERM)):
        it.interrupted(ask, number)
    it.finish()
    assert fingerprint(it.directory) == fingerprint(undisturbed(tmp_path, words))


@pytest.mark.fault
def test_interrupted_at_random_moments(run: Callable[..., Run], tmp_path: Path) -> None:
    words = settings("pendulum", 200_000)
    it, draw = run(*words), random.Random(0)
    for _ in range(12):
        number = draw.choice([signal.SIGINT, signal.SIGTERM])
        time.sleep(draw.uniform(0.5, 4))
        if not it.over:
            draw.choice([foreground, everyone])(it, number)
        assert it.driver.wait(60) in (128 + number, 0), it.said()
        assert "Traceback" not in it.said()
        it.check_gone()
        it.go_on()
    it.finish()
    assert fingerprint(it.directory) == fingerprint(undisturbed(tmp_path, words))


# ------------------------------------------------------------------ many at once


@pytest.mark.fault
def test_sixteen_runs_at_once_do_not_meet(short_path: Path, tmp_path: Path) -> None:
    words = settings("pong", 4_000)
    begun = [start(*words, cwd=short_path) for _ in range(16)]
    assert [one.wait(300) for one in begun] == [0] * 16, (short_path / "err").read_text()
    found = [path.parent for path in short_path.rglob("result.json")]
    alone = fingerprint(undisturbed(tmp_path, words))
    assert len(found) == 16 and all(fingerprint(one) == alone for one in found)
    assert not relatives(short_path / "tmp") and not any((short_path / "tmp").iterdir())
