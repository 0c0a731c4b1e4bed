"""``failure.json``: why the last attempt at a run failed. The next attempt renames it to ``failure.<number>.json``."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from evorl.util import run_directory
from evorl.util.errors import reason

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
    if not run_directory.exists_at_all(run_dir, FILE_NAME):
        text = "".join(traceback.format_exception(error))
        with suppress(OSError):
            run_directory.write_json(run_dir, FILE_NAME, {"reason": reason(error), "traceback": text})


def set_aside(run_dir: Path) -> None:
    """Rename an earlier ``failure.json`` to the next free number: ``failure.1.json``."""
    if run_directory.exists_at_all(run_dir, FILE_NAME):
        run_directory.set_aside(run_dir, FILE_NAME)
