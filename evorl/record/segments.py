"""Segments of appended rows: files that are written once, and that checkpoints share by hard links.

A checkpoint needs all rows of a replay, and writes only those that no segment holds. Between checkpoints a run writes
segments *ahead*, as soon as new rows fill one. So no checkpoint has much to write, not even the first one of a large
replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from evorl.record import tensors
from evorl.util import run_directory
from evorl.util.types import AppendedRows

SEGMENT_BYTES = 8 << 20  # smaller segments are written again with the next rows, so that there are few


class Segment(NamedTuple):
    """Rows ``first`` to ``end`` - 1, in a file."""

    first: int
    end: int
    file: str
    """Relative to the run directory."""
    size: int  # bytes
    sha256: str

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]


class Segments:
    """The segments of a run that its next checkpoint may use: those of the one before, and those written ahead."""

    def __init__(self, run_dir: Path, ahead: str, known: Mapping[str, Sequence[Segment]]) -> None:
        """``ahead`` is the folder of a run directory for segments written ahead, within that of checkpoints; ``known``
        has the segments by the names of their rows."""
        self.run_dir, self.ahead = run_dir, ahead
        self.known = {name: list(rows) for name, rows in known.items()}
        self._fast: set[str] = set()  # rows that left their ring before a checkpoint held them

    def write_ahead(self, appended: Mapping[str, AppendedRows]) -> None:
        """Write the rows that no segment holds, as far as they fill segments. Raises OSError (a full disk).

        Where a ring is so small that segments leave it unused, no more are written.
        """
        self._drop(appended)
        for name, rows in appended.items():
            rest = self._lacking(name, rows)
            count = rest.filling(SEGMENT_BYTES)
            while name not in self._fast and rest.end - rest.first >= count:
                self._make_folder()
                self.known[name].append(_write(self.run_dir, self.ahead, name, rest._replace(end=rest.first + count)))
                rest = self._lacking(name, rows)

    def write(self, folder: str, appended: Mapping[str, AppendedRows]) -> dict[str, list[Segment]]:
        """Write into a checkpoint's folder all rows: links to the segments that there are, and segments with the
        rest. Return them by name. Raises OSError (a full disk)."""
        self._drop(appended)
        return {name: self._write_all(folder, name, rows) for name, rows in appended.items()}

    def remove_ahead(self) -> None:
        """Remove what was written ahead."""
        with suppress(OSError):
            run_directory.remove(self.run_dir, self.ahead)

    def _drop(self, appended: Mapping[str, AppendedRows]) -> None:
        """Forget the segments that the next checkpoint cannot use, and remove those that no checkpoint has."""
        for name, rows in appended.items():
            known = self.known.get(name, [])
            self.known[name] = kept = _usable(known, rows)
            if kept != known:
                for segment in {*known} - {*kept}:
                    if segment.file == f"{self.ahead}/{segment.name}":
                        run_directory.remove(self.run_dir, segment.file)
                        self._fast.add(name)

    def _lacking(self, name: str, rows: AppendedRows) -> AppendedRows:
        """The rows that no segment holds."""
        kept = self.known[name]
        return rows._replace(first=kept[-1].end) if kept else rows

    def _make_folder(self) -> None:
        if run_directory.make_folder(self.run_dir, self.ahead.rpartition("/")[0]):
            run_directory.sync(self.run_dir)
        run_directory.make_folder(self.run_dir, self.ahead)

    def _write_all(self, folder: str, name: str, rows: AppendedRows) -> list[Segment]:
        complete = all(run_directory.exists(self.run_dir, part.file) for part in self.known[name])
        if not complete:  # somebody has removed a checkpoint
            self.known[name] = []
        kept = self.known[name]
        linked = [part._replace(file=f"{folder}/{part.name}") for part in kept]
        for part, new in zip(kept, linked, strict=True):
            run_directory.link(self.run_dir, part.file, new.file)
        rest = self._lacking(name, rows).pieces(SEGMENT_BYTES)
        return linked + [_write(self.run_dir, folder, name, piece) for piece in rest]


def _usable(known: Sequence[Segment], rows: AppendedRows) -> list[Segment]:
    """The segments that hold some of these rows; a short last segment is written again with the next rows."""
    kept = [part for part in known if part.end > rows.first]
    if kept and (kept[0].first > rows.first or kept[-1].end > rows.end):
        return []  # of another history
    while kept and kept[-1].size < SEGMENT_BYTES:
        kept.pop()
    return kept


def _write(run_dir: Path, folder: str, name: str, rows: AppendedRows) -> Segment:
    known = name.replace(".", "~2").replace("/", ".")  # no other name gives the same
    file = f"{folder}/rows-{known}-{rows.first}-{rows.end}.safetensors"
    try:
        size, digest = run_directory.write(run_dir, file, tensors.encode(rows.whole()["rows"]))
    except OSError:
        with suppress(OSError):
            run_directory.remove(run_dir, file)  # it takes room on a full disk
        raise
    return Segment(rows.first, rows.end, file, size, digest)
