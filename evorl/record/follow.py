"""Reading ``metrics.jsonl`` while it grows: the file is the queue that feeds every sink."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    step: int
    time: float  # seconds since the run began
    metrics: dict[str, float]  # null comes as NaN


def follow(path: Path, offset: int, wait: Callable[[], bool]) -> Iterator[Row]:
    """Yield the rows after a byte offset, those to come included.

    ``wait`` sleeps a little and says whether the writer has finished; then the rest is read and the iterator ends.
    """
    over = False
    with path.open("rb") as file:
        while True:
            file.seek(offset)
            whole = file.read().rpartition(b"\n")[0]
            for line in whole.splitlines(keepends=True):
                offset += len(line)
                yield row(line)
            offset += bool(whole)  # the last newline
            if over:
                return
            over = wait()


def row(line: bytes | str) -> Row:
    """One line of the file. Raises ValueError when it is none."""
    fields = json.loads(line)
    step, time = fields.pop("step"), fields.pop("time")
    return Row(step, time, {name: math.nan if value is None else value for name, value in fields.items()})
