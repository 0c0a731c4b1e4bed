"""docs/worlds.md: write its files and run its commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from forked import evorl

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "worlds.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
QUICK = {
    "evorl.run": ["budget.steps=2048", "eval.episodes=4"],
    "evorl.evaluate": ["episodes=4"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, in a folder of their own."""
    here = tmp_path_factory.mktemp("worlds")
    for kind, text in BLOCKS:
        if kind != "bash":
            path = here / text.splitlines()[0].removeprefix("# ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return here


def test_page_has_the_expected_blocks() -> None:
    assert len(COMMANDS) == 13 and len(BLOCKS) == 12
    assert all(text.startswith("# ") for kind, text in BLOCKS if kind != "bash")


def test_first_world_is_short() -> None:
    code = next(text for kind, text in BLOCKS if "@dataclass" in text)
    body = code[code.index("@dataclass") :]
    assert sum(bool(line.strip()) for line in body.splitlines()) <= 31


@pytest.mark.slow
def test_commands_run(folder: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for line in COMMANDS:
        words = shlex.split(line)
        assert words[0] == "python"
        extra = [word for name, more in QUICK.items() if name in words for word in more]
        kept = [word for word in words[1:] if word.partition("=")[0] not in {one.partition("=")[0] for one in extra}]
        if kept[0] == "-m" and kept[1].startswith("evorl."):
            done = evorl(kept[1].removeprefix("evorl."), *kept[2:], *extra, cwd=folder)
        else:
            command = [sys.executable, *kept]
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    for name in ("grid", "first", "race"):
        assert (folder / "runs" / name / "result.json").exists()
