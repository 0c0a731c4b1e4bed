"""Sweeps that are killed and given again: each good job trains once, to its end."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import fingerprint
from sweeping import Sweep, trained_once

from evorl.record.lock import is_locked

SOUP = "RuntimeError: the soup was off"


def kill_when(sweep: Sweep, reached: Callable[[], bool]) -> None:
    process = sweep.start()
    ends = time.monotonic() + 180
    while not reached():
        assert process.poll() is None and time.monotonic() < ends, (sweep.place / "err").read_text()
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(60) == -9
    while any(is_locked(path) for path in sweep.directory.iterdir()):  # Ray's workers go by themselves
        assert time.monotonic() < ends
        time.sleep(0.05)


def lines(sweep: Sweep) -> int:
    """Of metrics, in all the jobs that have not finished."""
    open_ends = [path.parent for path in sweep.directory.glob("*/metrics.jsonl")]
    texts = [path / "metrics.jsonl" for path in open_ends if not (path / "result.json").exists()]
    return sum(text.read_bytes().count(b"\n") for text in texts)


def resumed(run: Path) -> bool:
    """Whether it was gone on with, rather than begun anew."""
    return "resumed" in json.loads((run / "provenance.json").read_bytes())


def killed(sweep: Sweep, jobs: int, kills: int, poisoned: set[str]) -> None:
    """Give the sweep until it ends, killing it while jobs train; check what came of it."""
    sweep.poison.touch()
    draw, goal = random.Random(jobs), jobs - len(poisoned)
    interrupted: set[str] = set()
    for kill in range(kills):
        many, some = goal * (kill + 1) // (kills + 2), draw.randrange(2, 9)
        kept = sweep.kept()
        kill_when(sweep, lambda many=many, some=some: len(sweep.finished()) >= many and lines(sweep) >= some)
        assert kept.items() <= sweep.kept().items()
        interrupted |= {path.parent.name for path in sweep.directory.glob("*/metrics.jsonl")} - {*sweep.finished()}
    assert interrupted - poisoned
    kept = sweep.kept()
    code = sweep.start().wait(300)
    said = (sweep.place / "err").read_text()
    good = {str(number) for number in range(jobs)} - poisoned
    assert code == 1 and f"{len(poisoned)} of {jobs} jobs failed" in said
    assert {*sweep.finished()} == good and sweep.reasons() == dict.fromkeys(poisoned, SOUP)
    assert kept.items() <= sweep.kept().items()
    assert all(trained_once(sweep.directory / name) for name in good)
    assert all(resumed(sweep.directory / name) for name in interrupted - poisoned)
    kept = sweep.kept()
    assert sweep.run("hydra/launcher=basic")[0] == 1 and sweep.kept() == kept


@pytest.mark.fault
def test_a_killed_sweep_goes_on(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "+mdp.poisonous=[2]", "mdp.dose=2,1", "seed=1,2", "budget.steps=4000")
    killed(sweep, jobs=4, kills=1, poisoned={"0", "1"})


@pytest.mark.fault
@pytest.mark.parametrize("launcher", ["basic", "ray"])
def test_a_sweep_killed_three_times(tmp_path: Path, short_path: Path, launcher: str) -> None:
    words = ("+mdp.poisonous=[4]", "rl.lr=0.001,0.003", "mdp.dose=1,2,3,4,5,6", "budget.steps=30000")
    (tmp_path / "killed").mkdir()
    (tmp_path / "alone").mkdir()
    sweep = Sweep(tmp_path / "killed", *words, launcher=launcher)
    sweep.env["RAY_TMPDIR"] = str(short_path)
    killed(sweep, jobs=12, kills=3, poisoned={"3", "9"})
    alone = Sweep(tmp_path / "alone", *words)
    assert alone.run("mdp.dose=1,2,3")[0] == 0
    for there, here in zip("012345", ["0", "1", "2", "6", "7", "8"], strict=True):
        assert fingerprint(sweep.directory / here) == fingerprint(alone.directory / there)
