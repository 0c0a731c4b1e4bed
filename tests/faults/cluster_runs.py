"""Whole runs on workers, and whom to kill of them: what the tests of runs that are disturbed share."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from cluster_victims import send
from harness import QUICK, WORLDS, go, parent, relatives, rows, start, title

from evorl.record import checkpoint

CLUSTER = ("cluster=processes", "cluster.workers=2", "rl.members=3")
KNOWN = {
    ".hydra",
    ".lock",
    "checkpoints",
    "jobs.jsonl",
    "metrics.jsonl",
    "population.jsonl",
    "provenance.json",
    "result.json",
}


class Run:
    """A run in processes of its own, begun again as often as it is stopped; here on `cluster=processes`."""

    stays: ClassVar[frozenset[str]] = frozenset()
    """Temporary files that a run may leave."""
    farewell_s: ClassVar[float] = 5.0
    """After which nothing else of a killed run may be left."""

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

    def supervisors(self) -> set[int]:
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
            time.sleep(0.01)  # to look for processes takes milliseconds, which the run itself would lack
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

    def interrupted(self, ask: Callable[[Run, signal.Signals], None], number: signal.Signals) -> None:
        """It is asked to end while it trains: it saves, leaves nothing behind, and is begun again."""
        assert self.until_rows(3), self.said()
        ask(self, number)
        assert self.driver.wait(60) == 128 + number, self.said()
        self.check_gone(0.5)
        assert "Traceback" not in self.said() and "replaced" not in self.said()
        assert checkpoint.steps(self.directory)[-1] == rows(self.directory)[-1]["step"]
        self.go_on()

    def left(self) -> list[object]:
        """Processes, sockets and other files that outlive it; shared memory of ours has no name."""
        files = [path for path in (self.place / "tmp").iterdir() if path.name not in self.stays]
        return [*self.others(), *files]

    def check_gone(self, patience_s: float | None = None) -> None:
        """Nothing of it is left, at the latest after a while."""
        ends = time.monotonic() + (self.farewell_s if patience_s is None else patience_s)
        while left := self.left():
            assert time.monotonic() < ends, left
            time.sleep(0.01)

    def close(self) -> None:
        send(signal.SIGKILL, {self.driver.pid, *self.others()} if not self.over else self.others())
        self.driver.wait()


class RayRun(Run):
    """The same on `cluster=ray`, with a Ray of its own."""

    stays = frozenset({"ray"})  # Ray's own session folder

    def worker_actors(self) -> set[int]:
        """Ray's actors, which fork the workers."""
        return self._carried(False)

    def workers(self) -> set[int]:
        return self._carried(True)

    def _carried(self, forked: bool) -> set[int]:
        ours = {pid for pid in self.others() if b"ray::WorkerActor" in title(pid)}  # who is forked keeps the title
        return {pid for pid in ours if (parent(pid) in ours) == forked}


def begin(place: Path, *words: str) -> Run:
    return (RayRun if "cluster=ray" in words else Run)(place, *words)


def session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def settings(world: str, steps: int, *words: str) -> list[str]:
    usual = [*QUICK, *WORLDS[world], "checkpoint.every=5000", "eval.every=20000", f"budget.steps={steps}"]
    return list({word.partition("=")[0]: word for word in [*usual, *CLUSTER, *words]}.values())


def undisturbed(place: Path, words: list[str]) -> Path:
    """The same run with nobody else to be killed, here."""
    here = [word for word in words if not word.startswith("cluster")]
    assert go(*here, f"hydra.run.dir={place / 'alone'}") == 0
    return place / "alone"


def replaced(directory: Path) -> float:
    return max(row["cluster/replaced"] for row in rows(directory) if "cluster/replaced" in row)


# ------------------------------------------------------------------ the nemesis


def kill_one(victims: set[int], draw: random.Random) -> int:
    send(signal.SIGKILL, set(draw.sample(sorted(victims), 1) if victims else []))
    return min(1, len(victims))


def kill_worker(it: Run, draw: random.Random) -> int:
    return kill_one(it.workers(), draw)


def kill_actor(it: RayRun, draw: random.Random) -> int:
    return kill_one(it.worker_actors(), draw)


def kill_workers(it: Run, draw: random.Random) -> int:
    victims = it.workers()
    send(signal.SIGKILL, victims)
    return len(victims)


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


def kill_driver(it: Run) -> None:
    send(signal.SIGKILL, {it.driver.pid})


def kill_group(it: Run) -> None:
    os.killpg(it.driver.pid, signal.SIGKILL)


def foreground(it: Run, number: signal.Signals) -> None:
    """What a terminal does on Ctrl-C."""
    os.killpg(it.driver.pid, number)
