"""What a person is told to type starts the Python that runs now."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9))
def test_a_shell_reads_a_line_as_its_words(text: str) -> None:
    words = shlex.split(command.line("run", text, f"resume={command.quoted(text)}"))
    assert words[-2:] == [text, f"resume={command.quoted(text)}"]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9))
def test_a_shell_reads_a_word_as_hydra_needs_it(text: str) -> None:
    assert shlex.split(command.word("resume", text)) == [f"resume={command.literal(text)}"]


def test_what_hydra_needs_in_quotes_is_not_quoted_twice(mine: Path) -> None:
    assert command.resume(Path("a b"), ()) == "mine/bin/python -m evorl.run \"resume='a b'\""


def test_another_environments_python_is_not_it(mine: Path) -> None:
    assert command.run("resume=run") == "mine/bin/python -m evorl.run resume=run"


def test_from_elsewhere_and_without_any_on_path(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine.parent.parent / "other")
    monkeypatch.setenv("PATH", "")
    assert command.run("resume=run") == f"{mine}/python -m evorl.run resume=run"
