"""Files that the command line names: bounded reads, and durable writes, of which none is ever half done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from evorl.util import run_directory
from evorl.util.stop import signals_wait


def read(path: Path, most: int = run_directory.DOCUMENT) -> bytes:
    """Return the content of a file, which may be a link to one.

    Raises OSError, and `run_directory.Unsafe` for more than ``most`` bytes and for what is no regular file.
    """
    place = Path(os.path.realpath(path))
    return bytes(run_directory.read(place.parent, place.name, most))


@signals_wait()
def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically: readers see the whole old content or the whole new content."""
    run_directory.replace(path.parent, path.name, content)


@signals_wait()
def write_json(path: Path, value: Any) -> None:
    """Replace a file by a value as indented JSON; numbers that are not finite become null."""
    run_directory.write_json(path.parent, path.name, value)
