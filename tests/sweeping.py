"""What the tests of sweeps share: a world that is poisoned while a file exists, and a sweep over it."""

from __future__ import annotations

import io
import json
import os
import subprocess
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, ROOT, Alone, Faulty, go, rows, start

from evorl.jobs.search_loop import TOLD
from evorl.mdp.core import Array, State, Step


@dataclass(frozen=True, kw_only=True)
class Poisoned(Faulty):
    """Where ``dose`` is among the poisonous ones, every episode fails, as long as the file ``poison`` exists.

    Where that says "deadly", its process dies.
    """

    dose: int = 0
    poisonous: tuple[int, ...] = ()
    poison: str = ""
    budget: int = 6_000

    def reset(self, *players: int, seed: int) -> Alone:
        solo = super().reset(*players, seed=seed)
        if self.dose in self.poisonous and Path(self.poison).exists():
            solo.controllers = [_Sick(solo.controllers[0].state, Path(self.poison).read_text() == "deadly")]
        return solo


class _Sick:
    def __init__(self, state: State, deadly: bool) -> None:
        self.state, self.deadly = state, deadly

    async def __call__(self, action: Array) -> Step:
        if self.deadly:
            os._exit(3)
        raise RuntimeError("the soup was off")


class Sweep:
    """One command, given again and again into the same directory."""

    def __init__(self, place: Path, *words: str, launcher: str = "basic") -> None:
        self.place, self.directory, self.poison = place, place / "sweep", place / "poison"
        (place / "conf" / "mdp").mkdir(parents=True)
        (place / "conf" / "mdp" / "poisoned.yaml").write_text("_target_: sweeping.Poisoned\ndose: 0\n")
        self.words = [
            *("--multirun", f"hydra/launcher={launcher}", f"hydra.sweep.dir={self.directory}"),
            *("--config-dir", str(place / "conf"), "mdp=poisoned", "trust=[harness,sweeping]"),
            *(f"+mdp.poison={self.poison}", *QUICK, "rl.slots=4", "checkpoint.every=500", *words),
        ]
        self.env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}

    def start(self) -> subprocess.Popen[str]:
        return start(*self.words, cwd=self.place, **self.env)

    def run(self, *more: str) -> tuple[int, str]:
        """The exit code and what was said of errors, in this process, where episodes fail without a pause."""
        said = io.StringIO()
        with redirect_stderr(said), pytest.MonkeyPatch.context() as patch:
            patch.setattr("evorl.mdp.restarts.PAUSES_S", (0.0, 0.0))
            try:
                code = go(*self.words, *more)
            except SystemExit as left:
                code = int(str(left.code))
        return code, said.getvalue()

    def finished(self) -> list[str]:
        return sorted(path.parent.name for path in self.directory.glob("*/result.json"))

    def reasons(self) -> dict[str, str]:
        return {
            path.parent.name: json.loads(path.read_bytes())["reason"] for path in self.directory.glob("*/failure.json")
        }

    def kept(self) -> dict[str, tuple[int, int]]:
        """Each file of the finished jobs: when it was written and its inode."""
        files = [path for name in self.finished() for path in (self.directory / name).rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in files if path.name != ".lock"}


def trained_once(run: Path) -> bool:
    """Whether each batch of the run was learned from once, up to its budget."""
    learned = [row["step"] for row in rows(run) if "loss/policy" in row]
    return learned == sorted(set(learned)) and len({b - a for a, b in zip([0, *learned], learned, strict=False)}) == 1


def told(sweep: Path) -> list[dict[str, Any]]:
    """What the evolver was told, without what the clock says."""
    lines = [json.loads(line) for line in (sweep / TOLD).read_bytes().splitlines()]
    for line in lines:
        line["results"].pop("seconds", None)
        del line["seconds"]
    return lines
