"""The word ``latest`` for the newest run, in every command that takes a run directory."""

from __future__ import annotations

from pathlib import Path

from evorl.record.provenance import FILE_NAME
from evorl.util import run_directory
from evorl.util.errors import BadRequest

WORD = "latest"
RUNS = Path("runs")
"""Where runs lie that name no directory of their own. Jobs of sweeps lie elsewhere and have no part in this."""


def named(name: str, key: str = "") -> str:
    """Return the newest run directory below ``runs/`` for the word ``latest``, any other name as it is.

    The newest is the one that began last; a resume makes no run newer. A directory called ``latest`` goes first.
    Raises `BadRequest` at ``key`` if there is no run, and for an empty name.
    """
    if not name.strip("'\""):  # of a variable of a shell that is not set; as a path it is the working directory
        raise BadRequest(f"names no run; expected its directory, or {WORD}", key)
    if name != WORD or Path(WORD).exists():
        return name
    runs = [config.parent.parent for config in RUNS.rglob(".hydra/config.yaml")]
    if not runs:
        raise BadRequest(f"there is no run below {RUNS}/ here", key)
    return str(max(runs, key=_began))


def _began(run: Path) -> tuple[str, int]:
    """The second in which a run began, and the time of its first file for those of the same second."""
    try:
        started = str(run_directory.read_json(run, FILE_NAME)["started"])
    except (OSError, ValueError, KeyError, TypeError):  # damaged: no time, so it is the oldest
        started = ""
    lock = run / ".lock"
    return started, lock.stat().st_mtime_ns if lock.exists() else 0
