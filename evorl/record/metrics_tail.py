"""Reader of ``metrics.jsonl`` while it grows: the file is the queue that feeds TensorBoard and W&B."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from evorl.util import run_directory


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
    with run_directory.opened(path.parent, path.name) as file:
        while True:
            for line, end in run_directory.follow_lines(file, offset):
                offset = end
                try:
                    row = parse_row(line)
                except ValueError:
                    continue
                yield row
            if finished:
                return
            finished = wait()


def parse_row(line: bytes) -> Row:
    """Parse one line of the file. Raises ValueError if it is not valid."""
    fields = run_directory.parse_json(line)
    if not isinstance(fields, dict) or not {"step", "time"} <= fields.keys():
        raise ValueError(f"{line!r:.80} is no row")
    step, time = fields.pop("step"), fields.pop("time")
    return Row(step, time, {name: math.nan if value is None else value for name, value in fields.items()})
