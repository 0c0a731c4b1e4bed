"""Files that grow by lines of JSON and can be cut back to where a checkpoint knew them."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evorl.util import files

_MOST_PENDING = 1 << 24  # bytes kept in memory while the disk is full: hours of rows
_log = logging.getLogger("evorl")


class Lines:
    """Appends to a file, each row handed to the system at once; a full disk costs a warning, the rows wait in memory.

    The file is first cut back to ``offset``; one that ends before keeps its whole lines.
    """

    def __init__(self, path: Path, offset: int) -> None:
        self._name = path.name
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.offset = self._cut(offset)  # bytes in the file
        self._pending, self._starved = b"", False

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if len(self._pending) < _MOST_PENDING:
            self._pending += b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        self._flush()

    def sync(self) -> int:
        """The offset of a file that is on stable storage. Raises OSError where rows still wait for space."""
        self._flush()
        if self._pending:  # to go on from here would leave a gap
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._name)
        os.fsync(self._file)
        return self.offset

    def close(self) -> bool:
        """Close it; whether it was open."""
        if self._file < 0:
            return False
        self._flush()
        os.close(self._file)
        self._file = -1
        return True

    def _flush(self) -> None:
        try:
            files.append(self._file, self._pending)
        except OSError as error:
            os.ftruncate(self._file, self.offset)  # no half lines
            if not self._starved:
                _log.warning("%s cannot grow (%s): its rows wait in memory", self._name, error.strerror)
            self._starved = True
        else:
            self.offset += len(self._pending)
            self._pending, self._starved = b"", False

    def _cut(self, offset: int) -> int:
        """Shorten the file to an offset; return its size."""
        size = min(offset, os.fstat(self._file).st_size)
        while size and os.pread(self._file, 1, size - 1) != b"\n":
            size -= 1
        if size != offset:
            _log.warning("%s is not the file that the checkpoint knew: rows before this point are missing", self._name)
        os.ftruncate(self._file, size)
        return size
