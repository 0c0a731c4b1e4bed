"""Segments of appended rows: files that are written once, and that checkpoints share by hard links.

A checkpoint needs all rows of a replay, and writes only those that no segment holds. Between checkpoints a run writes
segments *ahead*, as soon as new rows fill one. So the pause of a checkpoint does not grow with the rows since the one
before it, nor with the first checkpoint's whole replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evorl.record import tensors
from evorl.util import files
from evorl.util.types import AppendedRows

SEGMENT_BYTES = 8 << 20  # smaller segments are written again with the next rows, so that there are few


class Segment(NamedTuple):
    """Rows ``first`` to ``end`` - 1, in a file."""

    first: int
    end: int
    file: Path
    size: int  # bytes
    sha256: str


class Segments:
    """The segments of a run that its next checkpoint may use: those of the one before, and those written ahead."""

    def __init__(self, ahead: Path, known: Mapping[str, Sequence[Segment]]) -> None:
        """``ahead`` is the folder for segments between two checkpoints, ``known`` has the segments of each name."""
        self.ahead, self.known = ahead, {name: list(one) for name, one in known.items()}

    def write_ahead(self, appended: Mapping[str, AppendedRows]) -> None:
        """Write the rows that no segment holds, as far as they fill segments. Raises OSError (a full disk)."""
        for name, one in appended.items():
            kept, rest = self._divide(name, one)
            count = rest.filling(SEGMENT_BYTES)
            while rest.end - rest.first >= count:
                if not self.ahead.exists():
                    self.ahead.mkdir(parents=True)
                    files.sync(self.ahead.parent.parent)
                kept.append(_write(self.ahead, name, rest._replace(end=rest.first + count)))
                rest = rest._replace(first=rest.first + count)
            for gone in self.known.get(name, []):
                if gone not in kept and gone.file.parent == self.ahead:
                    gone.file.unlink(missing_ok=True)
            self.known[name] = kept

    def write(self, directory: Path, appended: Mapping[str, AppendedRows]) -> dict[str, list[Segment]]:
        """Write into a checkpoint's directory all rows: links to the segments that there are, and segments with the
        rest. Return them by name. Raises OSError (a full disk)."""
        return {name: self._write_all(directory, name, one) for name, one in appended.items()}

    def _write_all(self, directory: Path, name: str, one: AppendedRows) -> list[Segment]:
        kept, rest = self._divide(name, one)
        if not all(part.file.exists() for part in kept):  # somebody has removed a checkpoint
            kept, rest = [], one
        linked = [part._replace(file=directory / part.file.name) for part in kept]
        for part, new in zip(kept, linked, strict=True):
            files.link(part.file, new.file)
        return linked + [_write(directory, name, piece) for piece in rest.pieces(SEGMENT_BYTES)]

    def _divide(self, name: str, one: AppendedRows) -> tuple[list[Segment], AppendedRows]:
        """The segments that hold rows of ``one``, and the rows that none of them holds."""
        kept = [part for part in self.known.get(name, []) if part.end > one.first]
        if kept and (kept[0].first > one.first or kept[-1].end > one.end):
            kept = []  # of another history
        while kept and kept[-1].size < SEGMENT_BYTES:
            kept.pop()
        return kept, one._replace(first=kept[-1].end if kept else one.first)


def _write(directory: Path, name: str, rows: AppendedRows) -> Segment:
    file = directory / f"rows-{name.replace('/', '.')}-{rows.first}-{rows.end}.safetensors"
    try:
        size, digest = files.write(file, tensors.encode(rows.whole()["rows"]))
    except OSError:
        file.unlink(missing_ok=True)  # it takes room on a full disk
        raise
    return Segment(rows.first, rows.end, file, size, digest)
