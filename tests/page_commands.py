"""The blocks of the README's and the docs' pages, their commands, and what a command itself says of its words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from harness import composed_once

ROOT = Path(__file__).parent.parent
EVOLVERS = sorted((ROOT / "docs" / "evolvers").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *EVOLVERS]
STAND_IN = ROOT / "benchmarks" / "suite" / "results" / "policies" / "ppo_cartpole"
"""The run that takes the place of the reader's."""
WORK = (
    *("evorl.run.begin", "evorl.run._resume", "evorl.run._replay", "evorl.jobs.sweep.check_jobs"),
    *("evorl.evaluate.evaluate", "evorl.matches.players.read", "evorl.export.export", "evorl.play.play"),
    *("evorl.report.find_runs", "evorl.jobs.wandb_upload.send"),
    *("evorl.reproduce.reproduce", "evorl.reproduction.check.check", "evorl.reproduction.affected.changed"),
    "evorl.reproduction.overview.write",
)
"""Where a command has read its words and begins its work."""


class Block(NamedTuple):
    label: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^( *)```([^\n]*)\n(.*?)^\1```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(label, text) for _, label, text in found]


def prose(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def lines(page: Path) -> list[str]:
    """The commands of a page's blocks, comments and prompts left out."""
    text = "\n".join(block.text for block in blocks(page) if block.label in ("sh", "console")).replace("\\\n", " ")
    words = [shlex.split(re.sub(r"^\w*\$ +", "", line), comments=True) for line in text.splitlines()]
    return [shlex.join(one) for one in words if one]


def ours(page: Path) -> list[str]:
    """Those of evorl, as ``evorl COMMAND ...``, and those of Python with evorl: ``python -c ...``."""
    written = [line.replace("python -m evorl.", "evorl ") for line in lines(page)]
    return [line for line in written if line.startswith(("evorl ", "python -c "))]


def within_sentences(page: Path) -> list[str]:
    """Those of evorl that stand in a sentence or a table with all of their words."""
    found = re.findall(r"`(?:python -m evorl\.|evorl )([a-z]+ [^`]+)`", page.read_text().replace("\n", " "))
    return [f"evorl {shlex.join(shlex.split(line))}" for line in found if not re.search(r"\.\.\.|…|NAME", line)]


class _Read(BaseException):
    """A command has read its words; no handler of `Exception` stops it."""


def _begin(*args: Any, **keys: Any) -> NoReturn:
    raise _Read


@contextmanager
def only_reading() -> Iterator[None]:
    """Commands end where they would begin their work."""
    with pytest.MonkeyPatch.context() as patch, composed_once():
        for place in WORK:
            module, _, name = place.rpartition(".")
            patch.setattr(import_module(module), name, _begin)
        yield


def is_read(line: str) -> bool:
    """Whether a command takes its words: `only_reading`, a reader's run replaced by one that is there."""
    name, *words = shlex.split(line.removeprefix("evorl "))
    words = [re.sub(r"^(run|init)=.*", rf"\1={STAND_IN}", word) for word in words]
    if name == "report":  # a word without = is a run, or a table
        known = {file.parent.name for file in (ROOT / "benchmarks").glob("*/paper.py")}
        words = [word if "=" in word or word.partition("/")[0] in known else str(STAND_IN) for word in words]
    try:
        return bool(import_module(f"evorl.{name}").main(words) == 0)
    except _Read:
        return True
    except SystemExit as end:  # of --help
        return not end.code
