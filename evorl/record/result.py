"""``result.json``: the outcome of a run. It is written last, so a run with this file has ended."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from evorl.util import run_directory
from evorl.util.types import Steps

FILE_NAME = "result.json"
_log = logging.getLogger("evorl")
_Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)] | None
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class _Best(msgspec.Struct):
    fitness: _Number
    step: Steps
    individual: int | None = None


class _Result(msgspec.Struct):
    """What others rely on, where it is there."""

    steps: Steps = 0
    seconds: _Seconds = 0.0
    fitness: _Number = None
    eval: dict[str, _Number] = {}
    best: _Best | None = None
    ended_by: dict[Literal["steps", "seconds", "fitness"], float] = {}


_NEEDED = {"steps", "seconds", "fitness", "eval"}


def read_result(run_dir: Path, name: str = FILE_NAME) -> dict[str, Any] | None:
    """Return the result of a run; None if it has none. Raises OSError, and ValueError for a damaged one."""
    try:
        result = run_directory.read_json(run_dir, name)
    except FileNotFoundError:
        return None
    msgspec.convert(result, _Result)
    return dict(result)


def has_result(run_dir: Path) -> bool:
    """Return whether a run has ended, as its result shows; a damaged one does not count."""
    try:
        return _read_whole(run_dir) is not None
    except (OSError, ValueError):
        return False


def sound_result(run_dir: Path) -> dict[str, Any] | None:
    """Return the result of a run; None, with a warning, for a damaged one, since the run's last steps make it again."""
    try:
        return _read_whole(run_dir)
    except (OSError, ValueError) as error:
        _log.warning("%s is damaged (%s), and is made again", run_dir / FILE_NAME, error)
        return None


def _read_whole(run_dir: Path) -> dict[str, Any] | None:
    """Return the result of a run; None if it has none. Raises OSError, and ValueError if it lacks a key as well."""
    result = read_result(run_dir)
    if result is not None and (missing := _NEEDED - result.keys()):
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    return result


def set_aside(run_dir: Path) -> None:
    """Rename a result after its steps, with the next free number if that name exists."""
    if run_directory.exists_at_all(run_dir, FILE_NAME):
        try:
            mark = str((read_result(run_dir) or {})["steps"])
        except (OSError, ValueError, LookupError):
            mark = "damaged"
        run_directory.set_aside(run_dir, FILE_NAME, mark)
