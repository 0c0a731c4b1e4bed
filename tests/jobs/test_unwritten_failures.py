"""Jobs whose failure could not be recorded, as on a full disk: a job has finished if and only if it has a result."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from sweeping import Sweep

from evorl.analysis.sweeps import started_jobs, why_unfinished
from evorl.jobs.search_loop import job_outcome
from evorl.jobs.sweep import _print_outcome
from evorl.record import failure
from evorl.reproduction import parts
from evorl.util import files, run_directory


@pytest.mark.slow
def test_a_sweep_whose_failures_could_not_be_written_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = Sweep(tmp_path, "+mdp.poisonous=[1,2]", "mdp.dose=1,2", "budget.steps=64")
    sweep.poison.touch()
    written = run_directory.write_json

    def full(directory: Path, name: str, value: Any) -> None:
        if name == failure.FILE_NAME:
            raise OSError(errno.ENOSPC, "No space left on device")
        written(directory, name, value)

    monkeypatch.setattr(run_directory, "write_json", full)
    code, said = sweep.run()
    assert (code, sweep.reasons()) == (1, {})
    assert said.splitlines()[-3:] == [
        f"evorl: 2 of 2 jobs failed; with hydra.sweep.dir={sweep.directory} they run again",
        "  0 mdp.dose=1: it has no result",
        "  1 mdp.dose=2: it has no result",
    ]
    assert "0 of 2 jobs have finished" in capsys.readouterr().out


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Jobs that finished, left nothing, were cut off before their config, failed, and have a torn result, or one
    that lacks what a result has."""
    for name in ("done", "nothing", "x/begun/.hydra", "failed", "torn/.hydra", "empty/.hydra"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "done" / ".hydra").mkdir()
    files.write_json(tmp_path / "done" / "result.json", {"fitness": 1.0, "eval": {}, "steps": 1, "seconds": 1})
    files.write_json(tmp_path / "done" / "failure.json", {"reason": "of an earlier attempt"})
    files.write_json(tmp_path / "failed" / "failure.json", {"reason": "why"})
    (tmp_path / "torn" / "result.json").write_text('{"fitness": 1')
    (tmp_path / "empty" / "result.json").write_text("{}")
    (tmp_path / ".lock").touch()
    return tmp_path


REASONS = {"done": None, "nothing": "it has no result", "x/begun": "it has no result", "failed": "why"}
REASONS |= {"torn": "it has no result", "empty": "it has no result"}


def test_a_result_alone_is_success(jobs: Path) -> None:
    assert {name: why_unfinished(jobs / name) for name in REASONS} == REASONS
    outcomes = {name: job_outcome(jobs / name)[1] or None for name in REASONS}
    assert outcomes.pop("torn", "").startswith("its result is damaged: ")
    assert outcomes == {name: why for name, why in REASONS.items() if name != "torn"} | {
        "empty": "its fitness is no number"
    }
    assert started_jobs(jobs) == sorted(REASONS)


def test_the_end_of_a_sweep_counts_results(jobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not _print_outcome(jobs, dict.fromkeys(REASONS, "seed=1"))
    out, err = capsys.readouterr()
    assert "1 of 6 jobs have finished" in out and "5 of 6 jobs failed" in err
    assert "  x/begun seed=1: it has no result" in err
    _print_outcome(jobs, {"done": ""})


@pytest.mark.parametrize(("code", "missing", "whole"), [(0, [], True), (0, ["1"], False), (1, [], False)])
def test_a_table_takes_a_sweep_for_done_by_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, missing: list[str], whole: bool
) -> None:
    def run(command: Any) -> int:
        for name in ("0", "1"):
            (tmp_path / "sweep" / name).mkdir(parents=True)
            if name not in missing:
                (tmp_path / "sweep" / name / "result.json").write_text("{}")
        (tmp_path / "sweep" / "sweep.json").write_text(json.dumps({"jobs": {"0": [], "1": []}}))
        return code

    monkeypatch.setattr(parts, "_run", run)
    assert parts.Sweep("sweep", ("seed=1,2",)).carry_out(tmp_path) is whole


@pytest.mark.parametrize(("also", "whole"), [((), False), (("seed=1,2",), True), (("seed=1", "seed=1,2,3"), False)])
def test_a_table_with_fewer_seeds_is_done_with_these(
    also: tuple[str, ...], whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command with more was stopped before."""
    for name in ("0", "1"):
        (tmp_path / "sweep" / name).mkdir(parents=True)
        (tmp_path / "sweep" / name / "result.json").write_text("{}")
    index = {"jobs": {name: ["rl=ppo", f"seed={int(name) + 1}"] for name in ("0", "1", "2")}}
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps(index))
    monkeypatch.setattr(parts, "_run", lambda command: 0)
    assert parts.Sweep("sweep", ("rl=ppo", "seed=1,2,3")).carry_out(tmp_path, also) is whole
