"""docs/plugins.md: its commands are typed one after the other, and its Python runs."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from plugin_packages import add_metadata, on_path

PAGE = (Path(__file__).parents[1] / "docs" / "plugins.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SESSIONS = [text.splitlines() for kind, text in BLOCKS if kind == "sh"]
TINY = ("budget.steps=600", "eval.every=0", "eval.episodes=2", "record.tensorboard=false", "rl.net.hidden=[8]")


def typed(line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what a command of the page does, in the folder ``place``; to install is to write metadata."""
    before, _, command = line.rpartition(" && ")
    monkeypatch.chdir(place / before.removeprefix("cd "))
    words = shlex.split(command)
    assert words[:2] == ["python", "-m"]
    if words[2] == "pip":
        assert words[3:5] == ["install", "-e"]
        add_metadata(place / words[5])
    elif words[2] == "pytest":
        assert (place / words[3] / "tests").is_dir()  # they run in test_new.py
    else:
        tiny = TINY if words[2] == "evorl.run" else ()
        assert import_module(words[2]).main([*words[3:], *tiny]) == 0, line


@pytest.mark.slow
@pytest.mark.parametrize("lines", [pytest.param(lines, id=lines[0].split()[-1]) for lines in SESSIONS])
def test_a_session(lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [shlex.split(line)[-1] for line in lines if "evorl.new" in line] or ["my_pg"]
    if "evorl.new" not in lines[0]:
        typed("python -m evorl.new algorithm my_pg", tmp_path, monkeypatch)
    for line in lines:
        with on_path(*(tmp_path / name for name in names)):
            typed(line, tmp_path, monkeypatch)


def test_its_python_runs() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for kind, text in BLOCKS:
        if kind == "python":
            exec(compile(text, "plugins.md", "exec", dont_inherit=True), names)


def test_its_entry_points_are_those_of_new() -> None:
    from evorl import new

    for kind, text in BLOCKS:
        if kind == "toml":
            ((group, points),) = tomllib.loads(text)["project"]["entry-points"].items()
            ((name, value),) = points.items()
            made = tomllib.loads(new.files(name, [*new.KINDS])["pyproject.toml"])["project"]["entry-points"]
            assert made[group] == {name: value}
