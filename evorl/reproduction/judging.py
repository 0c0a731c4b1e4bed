"""Policies of finished runs: evaluated again on other episodes and filmed, or kept as small runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evorl.cluster.processes.fork import with_parent
from evorl.reproduction.parts import ROOT


def judge(run: Path, words: Sequence[str], film: bool) -> tuple[dict[str, Any], Path | None]:
    """What ``evorl.evaluate`` prints of a run, and the film of one episode if asked for."""
    command = [sys.executable, "-m", "evorl.evaluate", f"run={run}", *words, f"video={str(film).lower()}", "json=true"]
    lines = subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, encoding="utf-8", preexec_fn=with_parent()
    ).stdout.splitlines()
    films = [Path(line.removeprefix("video: ")) for line in lines if line.startswith("video: ")]
    result: dict[str, Any] = json.loads(lines[-1])
    return result, films[0] if films else None


def keep(run: Path, words: Sequence[str], place: Path) -> None:
    """Keep the newest policy of a run in a directory, in place of the one there (``evorl.evaluate WORDS export=``).

    Whenever it is interrupted a whole policy is left, under the name of ``place`` or as its ``.NAME.old``.
    """
    new, old = (place.with_name(f".{place.name}.{which}") for which in ("new", "old"))
    if old.exists() and not place.exists():
        old.rename(place)  # of a process that was killed between the two names
    shutil.rmtree(new, ignore_errors=True)
    command = [sys.executable, "-m", "evorl.evaluate", f"run={run}", *words, f"export={new}"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, preexec_fn=with_parent())
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
