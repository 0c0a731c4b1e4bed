"""What a person is told to type starts the Python that runs now."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evorl.util import command


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python of an environment below ``tmp_path``, which runs and is not on PATH."""
    for place in ("mine", "other"):
        (tmp_path / place / "bin").mkdir(parents=True)
        (tmp_path / place / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "mine" / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine" / "bin"


def test_python_is_enough_where_it_is_first_on_path(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{mine}:/usr/bin")
    assert command.run("resume=a b") == "python -m evorl.run 'resume=a b'"


def test_another_environments_python_is_not_it(mine: Path) -> None:
    assert command.run("resume=run") == "mine/bin/python -m evorl.run resume=run"


def test_from_elsewhere_and_without_any_on_path(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine.parent.parent / "other")
    monkeypatch.setenv("PATH", "")
    assert command.run("resume=run") == f"{mine}/python -m evorl.run resume=run"
