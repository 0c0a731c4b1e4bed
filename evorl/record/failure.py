"""``failure.json``: why the last attempt at a run failed. The next attempt renames it to ``failure.<number>.json``."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from evorl.util.errors import reason
from evorl.util.files import write_json

FILE_NAME = "failure.json"


@contextmanager
def recorded(run_dir: Path, *, unless: type[Exception]) -> Iterator[None]:
    """Set an earlier failure aside, run the body, and record the exception that ends it.

    ``unless``: an exception type that is not a failure and is not recorded.
    """
    set_aside(run_dir)
    try:
        yield
    except unless:
        raise
    except Exception as error:
        write(run_dir, error)
        raise


def write(run_dir: Path, error: Exception) -> None:
    """Write ``failure.json`` unless this attempt has written it already. Errors of the disk are ignored."""
    if not (run_dir / FILE_NAME).exists():
        text = "".join(traceback.format_exception(error))
        with suppress(OSError):
            write_json(run_dir / FILE_NAME, {"reason": reason(error), "traceback": text})


def set_aside(run_dir: Path) -> None:
    """Rename an earlier ``failure.json`` to the next free number: ``failure.1.json``."""
    if (run_dir / FILE_NAME).exists():
        names = (run_dir / f"failure.{number}.json" for number in count(1))
        (run_dir / FILE_NAME).rename(next(name for name in names if not name.exists()))
