"""Run directories that somebody else has damaged or prepared, opened by every command; 2,000 more in tests/faults."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path

import pytest
from harness import go
from hostile_runs import base_runs, check, commands, damaged, seal

from evorl import evaluate
from evorl.analysis.runs import find_runs, read_runs
from evorl.record import checkpoint


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return base_runs(tmp_path_factory.mktemp("bases"))


@pytest.mark.slow_cases(but=("0",))
@pytest.mark.parametrize("five", range(20))
def test_a_damaged_directory_costs_a_line(
    five: int, bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(5 * five, 5 * five + 5):
        place = tmp_path / str(number)
        check(damaged(bases, place, number), commands(place / "run"), capsys)


def test_steps_that_are_no_number_are_damage(
    bases: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They compare with no budget, so such a run would never end; the checkpoint before goes on."""
    place = Path(shutil.copytree(bases["learner"], tmp_path / "run"))
    newest = place / "checkpoints" / str(checkpoint.steps(place)[-1])
    state = json.loads((newest / "state.json").read_bytes())
    state["state"]["run"]["steps"] = math.nan
    (newest / "state.json").write_text(json.dumps(state))
    seal(newest)
    assert go(f"resume={place}", "budget.steps=600") == 0
    assert f"checkpoint {newest.name} is damaged" in caplog.text and "falling back to the previous one" in caplog.text
    assert json.loads((place / "result.json").read_bytes())["steps"] >= 600


@pytest.mark.parametrize("cluster", ["local", "processes"])
def test_the_malformed_state_of_a_member_is_damage(
    cluster: str, bases: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is loaded in the member's own process."""
    place = Path(shutil.copytree(bases["learner"], tmp_path / "run"))
    newest = place / "checkpoints" / str(checkpoint.steps(place)[-1])
    state = json.loads((newest / "state.json").read_bytes())
    del state["state"]["run"]["actors"]["0"]["actor"]
    (newest / "state.json").write_text(json.dumps(state))
    seal(newest)
    assert go(f"resume={place}", "budget.steps=600", f"cluster={cluster}") == 0
    assert f"checkpoint {newest.name} is damaged" in caplog.text and "falling back to the previous one" in caplog.text


@pytest.mark.parametrize("name", ["provenance.json", "result.json"])
@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"steps": 1e308}'])
def test_a_damaged_record_does_not_block_a_resume(
    name: str, text: str, bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(shutil.copytree(bases["learner"], tmp_path / "run"))
    (place / name).write_text(text)
    assert go(f"resume={place}", *(() if name == "result.json" else ("budget.steps=600",))) == 0
    assert "Traceback" not in "".join(capsys.readouterr())
    assert json.loads((place / "result.json").read_bytes())["steps"] >= 400
    kept = [one.read_text() for one in place.glob(f"{name.partition('.')[0]}.*.json")]
    assert text in kept or text == '{"steps": 1e308}'


@pytest.mark.parametrize("command", ["resume", "export"])
def test_a_directory_that_cannot_be_written_costs_a_line(
    command: str,
    bases: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = Path(shutil.copytree(bases["learner"], tmp_path / "run"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    if command == "resume":
        assert go(f"resume={place}", "budget.steps=600") == 2
        line = f"evorl: resume: {place} cannot be written; a copy of it can go on\n"
    else:
        assert evaluate.main([f"run={place}", f"export={tmp_path / 'new'}"]) == 2
        line = f"evorl: export: cannot make {tmp_path / 'new'}: {tmp_path} cannot be written\n"
    assert capsys.readouterr().err == line


def test_a_report_of_many_tells_of_the_bad_ones(bases: dict[str, Path], tmp_path: Path) -> None:
    for name in ("good", "deep", "config", "names", "numbers"):
        shutil.copytree(bases["learner"], tmp_path / "runs" / name)
    (tmp_path / "runs" / "deep" / "result.json").write_text("[" * 100_000)
    (tmp_path / "runs" / "config" / ".hydra" / "config.yaml").write_text("a: " + "[" * 100_000)
    with (tmp_path / "runs" / "names" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 1000, "time": 9, "x" * 90_000: 1.0}) + "\n")
    with (tmp_path / "runs" / "numbers" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 1000, "time": 9, "train/return": 1e308, "eval/return_mean": 10**400}) + "\n")
    runs, notes = read_runs(find_runs([tmp_path / "runs"]))
    found = {one.directory.name: one for one in runs}
    assert found.keys() == {"good", "deep", "names", "numbers"}
    assert len(notes) == 2 and "config.yaml" in notes[0] and "deep/result.json (too many levels)" in notes[1]
    assert found["names"].damaged == 1 and not found["good"].damaged
    assert found["numbers"].last("train/return") == found["good"].last("train/return")
    assert found["deep"].result is None
