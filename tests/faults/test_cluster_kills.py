"""Whole runs on `cluster=processes` whose processes are killed, stopped and interrupted with real signals.

They end with the bits of a run that was left alone, and leave nothing behind.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_victims import relatives, send
from harness import QUICK, WORLDS, fingerprint, go, rows, start

from evorl.record import checkpoint

CLUSTER = ("cluster=processes", "cluster.workers=2", "rl.members=3")
SLOWER = ("cluster.deadline_s=1.5",)
FAREWELL_S = 5.0  # after which nothing of a killed run may be left
KNOWN = {".hydra", ".lock", "checkpoints", "metrics.jsonl", "provenance.json", "result.json"}


class Run:
    """A run in processes of its own, begun again as often as it is stopped."""

    def __init__(self, place: Path, *words: str) -> None:
        place.mkdir(exist_ok=True)
        self.place, self.words, self.directory = place, words, place / "run"
        self.go_on()

    def go_on(self) -> None:
        begun = (self.directory / ".hydra" / "config.yaml").exists()
        words = ["resume=run"] if begun else [*self.words, "hydra.run.dir=run"]
        self.driver: subprocess.Popen[str] = start(*words, cwd=self.place)

    @property
    def over(self) -> bool:
        return self.driver.poll() is not None

    def others(self) -> set[int]:
        """All processes of the run but its driver."""
        return relatives(self.place / "tmp") - {self.driver.pid}

    def nurses(self) -> set[int]:
        return {pid for pid in self.others() if session(pid) == pid}

    def workers(self) -> set[int]:
        return {pid for pid in self.others() if session(pid) not in (pid, None)}

    def rows(self) -> int:
        try:
            return (self.directory / "metrics.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def until(self, reached: Callable[[], object]) -> bool:
        """Wait for a moment of its life; False where it was over first."""
        ends = time.monotonic() + 120
        while not reached():
            if self.over:
                return False
            assert time.monotonic() < ends, self.said()
            time.sleep(0.001)
        return True

    def until_rows(self, number: int) -> bool:
        least = self.rows() + number
        return self.until(lambda: self.rows() >= least)

    def said(self) -> str:
        return (self.place / "out").read_text() + (self.place / "err").read_text()

    def finish(self) -> None:
        assert self.driver.wait(300) == 0, self.said()
        assert {path.name for path in self.directory.iterdir()} <= KNOWN
        self.check_gone(0.5)

    def check_gone(self, patience_s: float = FAREWELL_S) -> None:
        """No process, socket, shared memory (which has no name) or file is left, at the latest after a while."""
        ends = time.monotonic() + patience_s
        while (left := self.others()) or any((self.place / "tmp").iterdir()):
            assert time.monotonic() < ends, (left, [*(self.place / "tmp").iterdir()])
            time.sleep(0.01)

    def close(self) -> None:
        send(signal.SIGKILL, {self.driver.pid, *self.others()} if not self.over else self.others())
        self.driver.wait()


def session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


@pytest.fixture
def run(short_path: Path) -> Iterator[Callable[..., Run]]:
    begun: list[Run] = []

    def begin(*words: str) -> Run:
        begun.append(Run(short_path / str(len(begun)), *words))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


def settings(world: str, steps: int, *words: str) -> list[str]:
    usual = [*QUICK, *WORLDS[world], "checkpoint.every=5000", "eval.every=20000", f"budget.steps={steps}"]
    return list({word.partition("=")[0]: word for word in [*usual, *CLUSTER, *words]}.values())


def undisturbed(place: Path, words: list[str]) -> Path:
    """The same run with nobody else to be killed, here."""
    here = [word for word in words if not word.startswith("cluster")]
    assert go(*here, f"hydra.run.dir={place / 'alone'}") == 0
    return place / "alone"


# ------------------------------------------------------------------ the nemesis


def kill_worker(it: Run, draw: random.Random) -> int:
    victims = sorted(it.workers())
    send(signal.SIGKILL, set(draw.sample(victims, 1) if victims else []))
    return min(1, len(victims))


def kill_workers(it: Run, draw: random.Random) -> int:
    victims = it.workers()
    send(signal.SIGKILL, victims)
    return len(victims)


def kill_nurse(it: Run, draw: random.Random) -> int:
    victims = sorted(it.nurses())
    send(signal.SIGKILL, set(draw.sample(victims, 1) if victims else []))
    return min(1, len(victims))


def kill_all(it: Run, draw: random.Random) -> int:
    victims = it.others()
    send(signal.SIGKILL, victims)
    return len(victims)


def stop_worker(it: Run, draw: random.Random) -> int:
    """Until it has been found out, so that the next stop meets another call."""
    victims = sorted(it.workers())
    if not victims:
        return 0
    victim = draw.choice(victims)
    send(signal.SIGSTOP, {victim})
    it.until(lambda: victim not in it.workers())
    it.until_rows(1)
    return 1


def replaced(directory: Path) -> float:
    return max(row["cluster/replaced"] for row in rows(directory) if "cluster/replaced" in row)


def test_workers_and_nurses_are_killed_and_stopped_and_no_bit_changes(run: Callable[..., Run], tmp_path: Path) -> None:
    words = settings("pendulum", 40_000, *SLOWER)
    it, draw = run(*words), random.Random(0)
    for act in (kill_worker, kill_nurse, kill_workers, stop_worker, kill_all, kill_worker):
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
            act = draw.choices([kill_worker, kill_workers, kill_nurse, kill_all], [6, 2, 1, 1])[0]
            kills += act(it, draw)
    assert kills >= 50 and stops >= 10, it.said()
    it.finish()
    assert fingerprint(it.directory) == fingerprint(undisturbed(tmp_path, words))


@pytest.mark.fault
def test_helpers_are_killed_and_no_bit_changes(run: Callable[..., Run], tmp_path: Path) -> None:
    """Those of W&B; TensorBoard's is a thread of the driver."""

    def helpers() -> set[int]:
        return {pid for pid in it.others() if b"wandb" in Path(f"/proc/{pid}/cmdline").read_bytes()}

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


def kill_driver(it: Run) -> None:
    send(signal.SIGKILL, {it.driver.pid})


def kill_group(it: Run) -> None:
    os.killpg(it.driver.pid, signal.SIGKILL)


def kill_driver_and_nurse(it: Run) -> None:
    send(signal.SIGKILL, {it.driver.pid, min(it.nurses())})


def test_a_killed_driver_leaves_nothing(run: Callable[..., Run]) -> None:
    kills = (kill_driver, kill_group, kill_driver_and_nurse)
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
            it.until(lambda: bool(it.others()))  # the first nurse is there; what follows takes some 50 ms
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


# ------------------------------------------------------------------ a driver that is asked to stop


def foreground(it: Run, number: signal.Signals) -> None:
    """What a terminal does on Ctrl-C."""
    os.killpg(it.driver.pid, number)


def everyone(it: Run, number: signal.Signals) -> None:
    """What a service manager or a scheduler does."""
    send(number, {it.driver.pid} | it.others())


def test_interrupted_it_saves_and_resumes_exactly(run: Callable[..., Run], tmp_path: Path) -> None:
    words = settings("pong", 30_000)
    it = run(*words)
    for ask, number in ((foreground, signal.SIGINT), (everyone, signal.SIGTERM)):
        assert it.until_rows(3)
        ask(it, number)
        assert it.driver.wait(60) == 128 + number, it.said()
        it.check_gone(0.5)
        assert "Traceback" not in it.said() and "replaced" not in it.said()
        assert checkpoint.steps(it.directory)[-1] == rows(it.directory)[-1]["step"]
        it.go_on()
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


# ------------------------------------------------------------------ streams


@pytest.mark.fault
@pytest.mark.parametrize("algorithm", [("rl=ppo", "rl.minibatch=128"), ("rl=a3c",)])
def test_an_asynchronous_run_finishes_and_counts_every_step_once(
    algorithm: tuple[str, ...], run: Callable[..., Run]
) -> None:
    small = ("rl.slots=4", "rl.horizon=32", "rl.net.hidden=[8]", "~tuned", "rl.max_lag=9")
    quiet = ("record.tensorboard=false", "eval.every=0", "eval.episodes=2", "checkpoint.every=0")
    world = ("mdp=pong", "mdp.rounds=2", "mdp.round_steps=60", *algorithm, "rl.asynchronous=true")
    it = run(*world, *small, *quiet, *CLUSTER, "budget.steps=80000")
    draw, hits = random.Random(3), 0
    while it.until_rows(20):
        hits += kill_worker(it, draw)
    it.finish()
    played = [row for row in rows(it.directory) if "policy/lag" in row]
    assert hits >= 10
    dropped = played[-1]["policy/dropped_fragments"]
    assert played[-1]["step"] == 4 * 32 * (len(played) + dropped)  # each fragment is 128 environment steps
    assert all(row["policy/lag_max"] <= 9 for row in played)
