"""Why an attempt at a run failed: ``failure.json``, until the next attempt sets it aside under a number."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from evorl.util.errors import reason
from evorl.util.files import write_json

NAME = "failure.json"


@contextmanager
def noted(run_dir: Path, *, but: type[Exception]) -> Iterator[None]:
    """An attempt at the run: an earlier failure is set aside, and an exception that ends this one is noted.

    ``but``: exceptions that are no failure.
    """
    set_aside(run_dir)
    try:
        yield
    except but:
        raise
    except Exception as error:
        note(run_dir, error)
        raise


def note(run_dir: Path, error: Exception) -> None:
    """Write down why the run failed, unless this attempt did already; a disk that takes nothing is no new failure."""
    if not (run_dir / NAME).exists():
        text = "".join(traceback.format_exception(error))
        with suppress(OSError):
            write_json(run_dir / NAME, {"reason": reason(error), "traceback": text})


def set_aside(run_dir: Path) -> None:
    """Give an earlier failure the next free number: ``failure.1.json``."""
    if (run_dir / NAME).exists():
        names = (run_dir / f"failure.{number}.json" for number in count(1))
        (run_dir / NAME).rename(next(name for name in names if not name.exists()))
