"""Standard output that cannot fail: a run goes on when its terminal, or the reader of its pipe, is gone.

Nor does a character fail that the locale's encoding lacks: it becomes a question mark, and ± becomes +/-.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _TolerantFile(io.FileIO):
    """A file descriptor that accepts every write and drops what cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data) or memoryview(data).nbytes  # None: the reader is too slow
        except OSError:
            return memoryview(data).nbytes


def ignore_write_errors() -> None:
    """From now on no write to this process's stdout and stderr fails; a closed one leads nowhere.

    A character that their encoding lacks is written as ``?`` or spelt out, a byte of a file's name as it is.
    Streams that were replaced by other objects (by a test, a notebook) stay as they are.
    """
    for number in range(3):
        _open(number)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(2, sys.stderr)


def _open(number: int) -> None:
    """Make sure that a standard descriptor is open, or the next file would get its number and its output."""
    try:
        os.fstat(number)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number


_SPELT = {"±": b"+/-"}
"""Characters that have a spelling in ASCII."""


def _shown(error: UnicodeError) -> tuple[bytes, int]:
    """What is written for characters that an encoding lacks."""
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    # PEP 383: a lone surrogate stands for a byte
    shown = (
        bytes([ord(character) - 0xDC00]) if "\udc80" <= character <= "\udcff" else _SPELT.get(character, b"?")
        for character in missing
    )
    return b"".join(shown), error.end


codecs.register_error("evorl.shown", _shown)


def _stream(number: int, old: TextIO | None) -> TextIO:
    """A text stream to a descriptor, with the encoding of the ``old`` one (None where that was closed)."""
    if old is not None:
        with suppress(OSError):
            old.flush()
    raw = _TolerantFile(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=old.encoding if old else "utf-8",
        errors="evorl.shown",
        line_buffering=True,  # in a pipe too: a sweep's jobs print for hours
    )
