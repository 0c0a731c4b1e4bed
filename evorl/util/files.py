"""Durable file writes: after a power cut, a kill or a full disk no file is half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evorl.util import run_directory


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically: readers see the whole old content or the whole new content."""
    run_directory.replace(path.parent, path.name, content)


def write_json(path: Path, value: Any) -> None:
    """Replace a file by a value as indented JSON; numbers that are not finite become null."""
    run_directory.write_json(path.parent, path.name, value)
