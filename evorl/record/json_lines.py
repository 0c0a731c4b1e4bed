"""JSON-lines files that a resume truncates to the offset stored in the checkpoint."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evorl.util import run_directory
from evorl.util.errors import Failure

_MAX_PENDING = 1 << 24  # bytes of rows that wait in memory while the disk is full; those of hours
_log = logging.getLogger("evorl")


class JsonLinesFile:
    """A file of JSON lines, one `os.write` per append.

    On a full disk a warning is logged and the rows wait in memory. On opening, the file is truncated to ``offset``
    bytes; a shorter file keeps its complete lines.
    """

    def __init__(self, directory: Path, name: str, offset: int) -> None:
        self._name = name
        self._file = run_directory.descriptor(directory, name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            self.offset = self._truncate(directory, offset)  # bytes in the file
        except BaseException:
            os.close(self._file)
            raise
        self._pending, self._disk_full = b"", False

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows to the file, without waiting for stable storage. Raises `Failure` if too many wait for space."""
        self._pending += b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        self._flush()
        if len(self._pending) > _MAX_PENDING:  # without them no checkpoint would be whole
            raise Failure(
                f"{self._name} cannot grow, and {_MAX_PENDING >> 20} MiB of rows wait for room on the disk; once there "
                "is some, the run can be resumed from its last checkpoint"
            )

    def sync(self) -> int:
        """Flush to stable storage and return the file's size. Raises OSError if rows still wait for space."""
        self._flush()
        if self._pending:  # a resume from this offset would leave a gap
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._name)
        os.fsync(self._file)
        return self.offset

    def close(self) -> bool:
        """Close the file; return whether it was open."""
        if self._file < 0:
            return False
        self._flush()
        os.close(self._file)
        self._file = -1
        return True

    def _flush(self) -> None:
        try:
            run_directory.write_all(self._file, self._pending)
        except OSError as error:
            os.ftruncate(self._file, self.offset)  # leave no partial line
            if not self._disk_full:
                _log.warning("%s cannot grow (%s): its rows wait in memory", self._name, error.strerror)
            self._disk_full = True
        else:
            self.offset += len(self._pending)
            self._pending, self._disk_full = b"", False

    def _truncate(self, directory: Path, offset: int) -> int:
        """Truncate the file to an offset, or to its last complete line before it; return the size."""
        size = min(offset, os.fstat(self._file).st_size)
        for span in (1, run_directory.LINE):
            before = max(size - span, 0)
            if complete := os.pread(self._file, size - before, before).rfind(b"\n") + 1:
                break
        if before and not complete:
            raise run_directory.Unsafe(directory / self._name, "it has no line where the checkpoint expects one")
        size = before + complete
        if size != offset:
            _log.warning("%s is shorter than the checkpoint expects: rows before this point are missing", self._name)
        os.ftruncate(self._file, size)
        return size
