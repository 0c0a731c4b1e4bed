"""Sweeps whose jobs, or whose own process, end in the middle; and many runs that each start a Ray at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import QUICK, WORLDS, fingerprint, relatives, rows, start
from sweeping import Sweep, trained_once

from evorl.record.lock import is_locked

pytestmark = pytest.mark.fault

RUNS = 16
AT_ONCE = 4  # a Ray takes half a dozen processes and some 700 MB


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_on_ray_that_is_interrupted_or_killed_leaves_nothing_and_goes_on(
    number: signal.Signals, tmp_path: Path, short_path: Path
) -> None:
    sweep = Sweep(tmp_path, "seed=1,2,3", "budget.steps=60000", launcher="ray")
    sweep.env["RAY_TMPDIR"] = str(short_path)
    process = sweep.start()
    ends = time.monotonic() + 120
    while not any(path.stat().st_size for path in sweep.directory.glob("*/metrics.jsonl")):
        assert process.poll() is None and time.monotonic() < ends, (tmp_path / "err").read_text()
        time.sleep(0.01)
    os.kill(process.pid, number)
    killed = number == signal.SIGKILL
    assert process.wait(60) == (-number if killed else 128 + number), (tmp_path / "err").read_text()
    gone_within(5, lambda: relatives(tmp_path / "tmp"))
    assert not any(is_locked(path) for path in sweep.directory.iterdir())
    said = f"with hydra.sweep.dir={sweep.directory} the same command goes on" in (tmp_path / "err").read_text()
    assert said is not killed
    assert len(sweep.finished()) < 3
    assert sweep.run("hydra/launcher=basic") == (0, "")
    assert sweep.finished() == ["0", "1", "2"]
    assert all(trained_once(sweep.directory / name) for name in "012")


def gone_within(seconds: float, left: Callable[[], object]) -> None:
    ends = time.monotonic() + seconds
    while found := left():
        assert time.monotonic() < ends, found
        time.sleep(0.05)


@pytest.mark.parametrize("launcher", ["basic", "ray"])
def test_a_job_whose_process_dies_ends_the_sweep_and_not_what_it_has_done(
    tmp_path: Path, short_path: Path, launcher: str
) -> None:
    sweep = Sweep(tmp_path, "+mdp.poisonous=[2]", "mdp.dose=1,2,3", "budget.steps=3000", launcher=launcher)
    sweep.env["RAY_TMPDIR"] = str(short_path)
    sweep.poison.write_text("deadly")
    process = sweep.start()
    assert process.wait(200) == (3 if launcher == "basic" else 1)
    said = [(tmp_path / name).read_text() for name in ("out", "err")]
    assert "1" not in sweep.finished() and sweep.finished()[:1] == ["0"], said
    kept = sweep.kept()
    sweep.poison.unlink()
    process = sweep.start()
    assert process.wait(200) == 0, (tmp_path / "err").read_text()
    if launcher == "basic":
        assert f"{sweep.directory / '1'} goes on" in (tmp_path / "out").read_text()
    assert sweep.finished() == ["0", "1", "2"] and kept.items() <= sweep.kept().items()
    assert all(trained_once(sweep.directory / name) for name in "012")


def test_many_runs_at_once_with_a_ray_each(tmp_path: Path) -> None:
    words = (*QUICK, *WORLDS["pong"], "cluster=ray", "rl.members=2", "budget.steps=2000", "hydra.run.dir=run")
    places = [tmp_path / str(number) for number in range(RUNS)]
    for first in range(0, RUNS, AT_ONCE):
        some = places[first : first + AT_ONCE]
        for place in some:
            place.mkdir()
        runs = [start(*words, cwd=place) for place in some]
        try:
            for place, run in zip(some, runs, strict=True):
                assert run.wait(300) == 0, (place / "err").read_text()
        finally:
            for run in runs:
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGKILL)
                    run.wait()
    assert all(fingerprint(place / "run") == fingerprint(places[0] / "run") for place in places)
    assert all(row.get("cluster/replaced", 0) == 0 for place in places for row in rows(place / "run"))
    assert not any(relatives(place / "tmp") for place in places)
    assert all({path.name for path in (place / "tmp").iterdir()} <= {"ray"} for place in places)
