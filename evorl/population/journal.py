"""The journal of an asynchronous run: ``replay=RUN_DIR`` repeats the run in the order of its lines.

It is ``population.jsonl``, or ``jobs.jsonl`` where individuals share a critic.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np

from evorl.util import run_directory
from evorl.util.errors import BadRequest
from evorl.util.types import Steps

log = logging.getLogger("evorl")

Work = TypeVar("Work")


class IndividualEntry(msgspec.Struct):
    """What other runs need of a line of population.jsonl."""

    file: ClassVar[str] = "population.jsonl"
    id: int
    step: Steps
    genes: dict[str, Any]
    objectives: dict[str, float | None]
    side: int | None = None
    """The side of a game that it has learned, in a population of two sides."""

    def __str__(self) -> str:
        return f"individual {self.id}"

    def begins(self, task: Any) -> bool:
        """Whether a task's first individual is that of the line."""
        return bool(task.individuals[0].id == self.id)


class JobEntry(msgspec.Struct):
    """What a replay needs of a line of jobs.jsonl."""

    file: ClassVar[str] = "jobs.jsonl"
    job: int
    kind: str
    step: Steps
    objectives: dict[str, float | None] | None

    def __str__(self) -> str:
        return f"job {self.job} ({self.kind})"

    def begins(self, job: Any) -> bool:
        """Whether the line is of this job."""
        return bool(job.number == self.job and job.kind == self.kind)


Entry = IndividualEntry | JobEntry
Line = TypeVar("Line", bound=Entry)


class Journal:
    """The lines that a run has written, and those of the run that it repeats; most runs repeat none."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.entries = entries
        self.lines = 0  # that the run has written
        self._repeats_exactly = True  # as far as it has come

    @property
    def next(self) -> Entry | None:
        """The line to repeat next; None where none is left."""
        return self.entries[self.lines] if self.lines < len(self.entries) else None

    def ended(self, budget: int | None) -> bool:
        """Whether no line is left of a journal that is repeated; with a larger budget of steps the run goes on.

        A damaged journal may tell an end far beyond its lines.
        """
        return 0 < len(self.entries) <= self.lines and budget == self.entries[-1].step

    def next_of(self, in_flight: Sequence[Work]) -> Work | None:
        """Return the work that the next line is of; None where no line is left. Raises `BadRequest` if it is not in
        flight."""
        if (entry := self.next) is None:
            return None
        for work in in_flight:
            if entry.begins(work):
                return work
        line = f"line {self.lines + 1} of {entry.file} is {entry}"
        raise BadRequest(f"{line}, which is not in flight: the journal is of another run or version", "replay")

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count lines of this run. Warns once if the objectives of one differ from those in the journal."""
        for entry, row in zip(self.entries[self.lines : self.lines + len(rows)], rows, strict=False):
            if self._repeats_exactly and (objectives := _as_written(row["objectives"])) != entry.objectives:
                self._repeats_exactly = False
                log.warning(
                    "this replay differs: %s has objectives %s, the journal says %s; the cause is another version, "
                    "other hardware or a world that is not a function of its seed", entry, objectives, entry.objectives,
                )  # fmt: skip
        self.lines += len(rows)


def _as_written(objectives: Mapping[str, float] | None) -> dict[str, float | None] | None:
    """Objectives as a journal has them: null unless finite."""
    if objectives is None:
        return None
    return {name: x if np.isfinite(x) else None for name, x in objectives.items()}


def read_journal(directory: Path, kind: type[Line], key: str) -> list[Line]:
    """The whole lines, one at least, of a run's journal. Raises `BadRequest` (at ``key``)."""
    entries = list[Line]()
    decoder = msgspec.json.Decoder(kind)
    try:
        for line in run_directory.lines(directory, kind.file):
            entries.append(decoder.decode(line))
    except run_directory.Unsafe as error:
        raise error.under(key) from None
    except OSError:
        raise BadRequest(f"{directory} has no {kind.file}", key) from None
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise BadRequest(f"line {len(entries) + 1} of {directory / kind.file} is damaged: {error}", key) from None
    if not entries:
        raise BadRequest(f"{directory / kind.file} has no whole line", key)
    return entries
