"""Files that a power cut, a kill or a full disk cannot leave half written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec


def write(path: Path, chunks: Iterable[bytes | memoryview]) -> tuple[int, str]:
    """Write a new file to stable storage; return its size in bytes and its SHA-256."""
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
            append(descriptor, chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size, digest.hexdigest()


def append(descriptor: int, chunk: bytes | memoryview) -> None:
    """Write every byte: one call to the system may take fewer than it is given."""
    rest = memoryview(chunk)
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]


def sync(directory: Path) -> None:
    """Make the names in a directory durable (those just created, renamed or removed)."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: bytes) -> None:
    """Put a file in place of an older one: readers see the whole old or the whole new content."""
    beside = path.with_name(f".{path.name}.partial")
    write(beside, [content])
    os.replace(beside, path)
    sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON in place of an older file; a number that is not finite becomes null."""
    replace(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
