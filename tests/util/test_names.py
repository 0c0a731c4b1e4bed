"""Names that records cannot hold are refused by every command before anything is written."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

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


LONG = "a" * 300
SEARCH = ["--multirun", "mdp=cartpole", "rl=ppo", "hydra/sweeper=evorl", "rl.lr=interval(1e-5,1e-2)"]


@pytest.mark.parametrize(
    ("command", "words", "line"),
    [
        ("export", ["run=zoo/ppo_pong", f"out={LONG}.onnx"], "out: the name of the file or directory takes 305 bytes"),
        ("export", ["run=zoo/ppo_pong", f"out={'a' * 246}.onnx"], "out: the name of the hidden file in which it is"),
        ("export", ["run=zoo/ppo_pong", f"out={LONG}/p.onnx"], "out: the name of the directory takes 300 bytes"),
        ("evaluate", ["run=zoo/ppo_pong", f"export={LONG}"], "export: the name of the directory takes 300 bytes"),
        ("evaluate", ["matrix=true", "players=[zoo/ppo_pong,rule]", f"out={LONG}"], "out: the name of the directory"),
        ("evaluate", [f"run={LONG}/x"], f"run: {LONG}/x: no such run directory"),
        ("run", [f"resume={LONG}"], f"resume: {LONG}: no such run directory"),
        ("report", [LONG], f"{LONG}: no such run directory"),
        ("run", [*SEARCH, f"hydra.sweep.dir={LONG}"], "hydra.sweep.dir: the name of the directory takes 300 bytes"),
        ("run", [*SEARCH, "hydra.sweep.dir=file"], "hydra.sweep.dir: file is no directory"),
        (
            "run",
            ["--multirun", "mdp=cartpole", "seed=1,2", "hydra.sweep.dir=file"],
            "hydra.sweep.dir: file is no directory",
        ),
    ],
)
def test_a_path_that_cannot_be_is_refused(
    command: str, words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """In Python 3.11 to look for a name that is too long raises OSError."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert import_module(f"evorl.{command}").main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"evorl: {line}") and err.count("\n") == 1
    assert os.listdir() == ["file"]
