"""Reader of ``metrics.jsonl`` while it grows: the file is the queue that feeds TensorBoard and W&B."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One line of ``metrics.jsonl``."""

    step: int
    time: float  # seconds since the run began
    metrics: dict[str, float]  # null is read as NaN


def follow_rows(path: Path, offset: int, wait: Callable[[], bool]) -> Iterator[Row]:
    """Yield the rows after a byte offset, including rows that are written later.

    ``wait`` sleeps for a short time and returns whether the writer has finished. Once it has, the rest of the file is
    read and the iterator ends. Lines that are not valid, in a damaged file, are left out.
    """
    finished = False
    with path.open("rb") as file:
        while True:
            file.seek(offset)
            whole = file.read().rpartition(b"\n")[0]
            for line in whole.splitlines(keepends=True):
                offset += len(line)
                try:
                    row = parse_row(line)
                except ValueError:
                    continue
                yield row
            offset += bool(whole)  # the last newline
            if finished:
                return
            finished = wait()


def parse_row(line: bytes | str) -> Row:
    """Parse one line of the file. Raises ValueError if it is not valid."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or not {"step", "time"} <= fields.keys():
        raise ValueError(f"{line!r:.80} is no row")
    step, time = fields.pop("step"), fields.pop("time")
    return Row(step, time, {name: math.nan if value is None else value for name, value in fields.items()})
