"""Durable file writes: after a power cut, a kill or a full disk no file is half written."""

from __future__ import annotations

import hashlib
import os
import shutil
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
            write_all(descriptor, chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size, digest.hexdigest()


def write_all(descriptor: int, chunk: bytes | memoryview) -> None:
    """Write every byte: one `os.write` may write fewer bytes than it was given."""
    rest = memoryview(chunk)
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]


def sync(path: Path) -> None:
    """Flush a file to stable storage, or the names in a directory: those just created, renamed or removed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically: readers see the whole old content or the whole new content."""
    temporary = path.with_name(f".{path.name}.partial")
    write(temporary, [content])
    os.replace(temporary, path)
    sync(path.parent)


def link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it to stable storage where the file system has no hard links."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)
        sync(target)


def write_json(path: Path, value: Any) -> None:
    """Replace a file by a value as indented JSON; numbers that are not finite become null."""
    replace(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
