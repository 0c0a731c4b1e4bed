"""Names that records cannot hold are refused by every command before anything is written."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import pytest

from evorl import __version__
from evorl.analysis.runs import read_runs

LATIN = b"caf\xe9"
COMMANDS = {
    "run": ["resume=NAME"],
    "evaluate": ["run=NAME"],
    "export": ["run=NAME", "out=policy.onnx"],
    "play": ["run=NAME"],
    "report": ["NAME"],
    "reproduce": ["lamarckian/pong", "profile=ci", "out=NAME"],
}
REFUSED = "caf\\xe9' is not UTF-8, and records cannot hold it; rename it\n"


def in_(place: Path, name: bytes = LATIN) -> str:
    """A directory whose name is not UTF-8, as the command line of this process would have it."""
    path = os.path.join(os.fsencode(place), name)
    os.mkdir(path)
    return os.fsdecode(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_as_a_word(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = in_(tmp_path)
    words = [word.replace("NAME", name) for word in COMMANDS[command]]
    assert import_module(f"evorl.{command}").main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("evorl: '") and err.endswith(REFUSED)
    assert os.listdir(name) == []


@pytest.mark.parametrize("words", [["hydra.run.dir=NAME"], ["--multirun", "seed=1,2", "hydra.sweep.dir=NAME"]])
def test_of_a_new_run(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from evorl.run import main

    assert main([word.replace("NAME", os.fsdecode(LATIN)) for word in words]) == 2
    assert capsys.readouterr().err.endswith(REFUSED)


@pytest.mark.parametrize("command", COMMANDS)
def test_as_the_working_directory(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = in_(tmp_path)
    monkeypatch.chdir(name)
    words = [word.replace("NAME", "run") for word in COMMANDS[command]]
    assert import_module(f"evorl.{command}").main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("evorl: the working directory: '") and err.endswith(REFUSED)
    assert os.listdir(name) == []


def test_a_report_leaves_such_a_run_out(tmp_path: Path) -> None:
    for name in (LATIN, b"good"):
        folder = Path(in_(tmp_path, name), ".hydra")
        folder.mkdir()
        (folder / "config.yaml").write_text("seed: 1\n", encoding="utf-8")
    runs, notes = read_runs([Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), one))) for one in (LATIN, b"good")])
    assert [run.directory.name for run in runs] == ["good"]
    assert len(notes) == 1 and "is not UTF-8" in notes[0] and notes[0].isascii()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_tells_evorls_version(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_module(f"evorl.{command}").main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"
