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


def stamp(run_dir: Path) -> tuple[int, int] | None:
    """What differs once another attempt has written ``failure.json``; None without the file."""
    try:
        found = (run_dir / FILE_NAME).lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def write(run_dir: Path, error: Exception, earlier: tuple[int, int] | None = None) -> None:
    """Write ``failure.json`` unless this attempt has written it already. Errors of the disk are ignored.

    ``earlier``: the `stamp` at the start of this attempt. A file that still has it is set aside.
    """
    if earlier is not None and stamp(run_dir) == earlier:
        with suppress(OSError):
            set_aside(run_dir)
    if not run_directory.exists_at_all(run_dir, FILE_NAME):
        text = "".join(traceback.format_exception(error))
        with suppress(OSError):
            run_directory.write_json(run_dir, FILE_NAME, {"reason": reason(error), "traceback": text})


def set_aside(run_dir: Path) -> None:
    """Rename an earlier ``failure.json`` to the next free number: ``failure.1.json``."""
    if run_directory.exists_at_all(run_dir, FILE_NAME):
        run_directory.set_aside(run_dir, FILE_NAME)
