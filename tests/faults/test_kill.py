"""Runs that are killed, stopped, damaged or starved of disk, and go on to the bits of one that was left alone."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import Forked
from harness import MINDS, QUICK, WORLDS, fingerprint, go, rows, start

from evorl.record import checkpoint

STEPS = 15_000
KNOWN = {".hydra", ".lock", "checkpoints", "metrics.jsonl", "provenance.json", "result.json"}


class Victim:
    """A run in a process of its own that is begun, or resumed, as often as it is stopped."""

    def __init__(self, place: Path, *words: str, start_up: bool) -> None:
        """``start_up``: from the interpreter's, else from the end of the imports on."""
        self.place, self.run, self.words, self.start_up = place, place / "run", words, start_up
        self.process: subprocess.Popen[str] | Forked | None = None

    def go_on(self) -> subprocess.Popen[str] | Forked:
        begun = (self.run / ".hydra" / "config.yaml").exists()
        words = [f"resume={self.run.name}"] if begun else [*self.words, f"hydra.run.dir={self.run.name}"]
        if self.start_up:
            self.process = start(*words, cwd=self.place)
        else:
            temporary, out, err = (self.place / name for name in ("tmp", "out", "err"))
            temporary.mkdir(exist_ok=True)
            self.process = Forked(("run", *words), self.place, out, err, TMPDIR=str(temporary))
        return self.process

    def until(self, reached: Callable[[], bool]) -> bool:
        """Wait for a moment in its life; False where the run was over first."""
        assert self.process is not None
        ends = time.monotonic() + 120
        while not reached():
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < ends, self.err()
            time.sleep(0.0005)
        return True

    def stop(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

    def move(self) -> None:
        self.run = self.run.rename(self.place / f"{self.run.name}-moved")

    def rows(self) -> int:
        try:
            return (self.run / "metrics.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def err(self) -> str:
        return (self.place / "err").read_text()

    def check_clean(self) -> None:
        """Nothing is left but the run: no process, no temporary file, no half checkpoint."""
        assert self.process is not None
        with pytest.raises(ProcessLookupError):
            os.killpg(self.process.pid, 0)
        assert list((self.place / "tmp").iterdir()) == []
        assert {path.name for path in self.run.iterdir()} <= KNOWN
        kept = self.run / "checkpoints"
        assert {path.name for path in kept.iterdir()} == {"latest", *map(str, checkpoint.steps(self.run))}

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Callable[..., Victim]]:
    made: list[Victim] = []

    def make(*words: str, start_up: bool = False) -> Victim:
        made.append(Victim(tmp_path, *words, start_up=start_up))
        return made[-1]

    yield make
    for each in made:
        each.close()


def settings(case: str, *words: str, steps: int = STEPS) -> list[str]:
    usual = [*QUICK, *MINDS[case], "checkpoint.every=1500", "eval.every=5000", f"budget.steps={steps}", *words]
    return list({word.partition("=")[0]: word for word in usual}.values())


def undisturbed(tmp_path: Path, words: list[str]) -> Path:
    assert go(*words, f"hydra.run.dir={tmp_path / 'alone'}") == 0
    return tmp_path / "alone"


def more_rows(it: Victim, number: int) -> Callable[[], bool]:
    """True once the run has written so many rows, those aside that it begins with (and cuts back when it resumes)."""
    least = it.rows()

    def reached() -> bool:
        nonlocal least
        least = min(least, now := it.rows())
        return now >= least + number

    return reached


@pytest.mark.slow
def test_killed_and_interrupted_again_and_again_it_ends_the_same(victim: Callable[..., Victim], tmp_path: Path) -> None:
    words = settings("cartpole")
    it, draw = victim(*words), random.Random(0)
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        it.go_on()
        assert it.until(more_rows(it, draw.randrange(1, 15)))
        code = it.stop(number)
        assert code == (-9 if number == signal.SIGKILL else 128 + number), it.err()
        assert "Traceback" not in it.err()
        if number != signal.SIGKILL:
            saved = checkpoint.steps(it.run)[-1]
            assert saved == rows(it.run)[-1]["step"]  # where it stopped
            line = f"evorl: interrupted by {number.name}; saved at step {saved}; resume with: "
            assert it.err().splitlines()[-1] == f"{line}python -m evorl.run resume=run"
    assert it.go_on().wait(120) == 0, it.err()
    it.check_clean()
    assert fingerprint(it.run) == fingerprint(undisturbed(tmp_path, words))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["pong-lstm", "duel"])
def test_killed_between_checkpoints_and_moved_it_ends_the_same(
    case: str, victim: Callable[..., Victim], tmp_path: Path
) -> None:
    words = settings(case, "eval.every=0", steps=6_000)
    it, lost = victim(*words), []
    for checkpoints in (1, 2):
        it.go_on()
        assert it.until(lambda least=checkpoints: len(checkpoint.steps(it.run)) >= least)
        assert it.until(more_rows(it, 2))
        assert it.stop(signal.SIGKILL) == -9
        lost.append(rows(it.run)[-1]["step"] - checkpoint.steps(it.run)[-1])
        it.move()
    assert max(lost) > 0  # steps that were made, and are made again
    assert it.go_on().wait(120) == 0, it.err()
    it.check_clean()
    assert fingerprint(it.run) == fingerprint(undisturbed(tmp_path, words))


@pytest.mark.slow
def test_a_second_signal_leaves_at_once_with_the_last_checkpoint_whole(victim: Callable[..., Victim]) -> None:
    it = victim(*settings("duel", "mdp.delay_ms=[60,60]", "checkpoint.every=1"))
    it.go_on()
    assert it.until(lambda: bool(checkpoint.steps(it.run)))
    assert it.process is not None
    it.process.send_signal(signal.SIGINT)
    assert it.until(lambda: "second signal" in it.err())
    asked = time.monotonic()
    assert it.stop(signal.SIGTERM) in (130, 143)  # 130 where the batch ended in between
    assert time.monotonic() - asked < 10 and "Traceback" not in it.err()
    assert checkpoint.newest(it.run) is not None
    assert it.go_on() and it.until(lambda: it.rows() > 1)
    assert it.stop(signal.SIGTERM) == 143


@pytest.mark.slow_cases("15")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_start_up_leaves_with_one_line(number: signal.Signals, victim: Callable[..., Victim]) -> None:
    it = victim(*settings("pong", steps=10**9), start_up=True)
    it.go_on()
    assert it.until(lambda: (it.place / "out").stat().st_size > 0)  # the first line
    assert it.stop(number) == 128 + number
    assert it.err().splitlines()[-1] == f"evorl: ended by {number.name}" and "Traceback" not in it.err()
    assert not list(it.place.glob("run/checkpoints/.*"))


def test_a_damaged_checkpoint_costs_time_but_no_bit(victim: Callable[..., Victim], tmp_path: Path) -> None:
    words = settings("pendulum", steps=9_000)
    it = victim(*words)
    shutil.copytree(alone := undisturbed(tmp_path, words), it.run)
    (it.run / "result.json").unlink()
    newest = checkpoint.steps(it.run)[-1]
    with (it.run / "checkpoints" / str(newest) / "tensors.safetensors").open("r+b") as file:
        file.truncate(100)
    assert it.go_on().wait(60) == 0, it.err()
    assert f"checkpoint {newest} is damaged" in it.err()
    it.check_clean()
    assert fingerprint(it.run) == fingerprint(alone)


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file may grow beyond what the first half needed: neither checkpoint nor metrics can be written any more."""
    words = settings("cartpole", "eval.every=0", steps=3_000)
    whole, half = undisturbed(tmp_path, words), tmp_path / "half"
    assert go(*words, "budget.steps=1500", f"hydra.run.dir={half}") == 0
    good, stopped = checkpoint.steps(half), checkpoint.steps(half)[-1]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    capsys.readouterr()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, before[1]))
        assert go(f"resume={half}", "budget.steps=3000") == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    seen = capsys.readouterr()
    assert "NOT saved" in seen.out and "OSError" in seen.err.splitlines()[0]
    assert checkpoint.steps(half) == good and not (half / "result.json").exists()
    assert go(f"resume={half}") == 0
    assert fingerprint(half, aside=[stopped]) == fingerprint(whole, aside=[stopped])


# ------------------------------------------------------------------ the long ones


@pytest.mark.fault
@pytest.mark.parametrize("case", MINDS)
def test_killed_many_times(case: str, victim: Callable[..., Victim], tmp_path: Path) -> None:
    """Ten kills at random moments, every second one while a checkpoint is being written; the directory moves on."""
    words = settings(case, "checkpoint.every=500", steps=60_000)
    it, draw = victim(*words), random.Random(case)
    kills = writing = 0
    while kills < 10:
        it.go_on()
        far = more_rows(it, draw.randrange(1, 25))
        if not it.until(far):
            break
        if kills % 2:
            writing += it.until(lambda: any((it.run / "checkpoints").glob(".*.partial")))
        kills += it.stop(signal.SIGKILL) == -9
        if it.run.exists():
            it.move()
    assert kills >= 5 and writing >= 2
    assert it.go_on().wait(300) == 0, it.err()
    it.check_clean()
    assert fingerprint(it.run) == fingerprint(undisturbed(tmp_path, words))


@pytest.mark.fault
@pytest.mark.parametrize("world", WORLDS)
def test_signals_at_random_moments(world: str, victim: Callable[..., Victim], tmp_path: Path) -> None:
    words = settings(world, "checkpoint.every=700", steps=60_000)
    it, draw = victim(*words, start_up=True), random.Random(world)
    for _ in range(8):
        number = draw.choice([signal.SIGINT, signal.SIGTERM])
        it.go_on()
        time.sleep(draw.uniform(0.05, 6))  # also before, and during, its imports
        if it.process is not None and it.process.poll() is None:
            assert it.stop(number) in (128 + number, 0), it.err()
            assert "Traceback" not in it.err()
    assert it.go_on().wait(300) == 0, it.err()
    it.check_clean()
    assert fingerprint(it.run) == fingerprint(undisturbed(tmp_path, words))
