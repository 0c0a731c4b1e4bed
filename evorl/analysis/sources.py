"""What a report is made of: the runs, jobs and searches that the command line names, and what it chooses of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evorl.analysis.groups import check_keys, runs_by_world
from evorl.analysis.runs import RunRecord
from evorl.analysis.scores import Targets, check_targets
from evorl.analysis.sweeps import PendingJob
from evorl.util import command
from evorl.util.errors import BadRequest


@dataclass(frozen=True, kw_only=True, eq=False)
class Sources:
    """The runs that were read, and what else lies beside them."""

    runs: Sequence[RunRecord]
    notes: Sequence[str] = ()
    """Runs that were left out, with the reason."""
    pending: Sequence[PendingJob] = ()
    """Jobs of sweeps that have no run yet."""
    searches: Sequence[Path] = ()
    """Directories of searches over jobs."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the command line chooses of a report."""

    by: Sequence[str] = ()
    """Keys that form the groups; empty: all differences."""
    target: Targets = None
    """Scores that count as 0 and 1."""
    csv: bool = False
    csv_raw: bool = False
    """Text of CSV as it is, also where a spreadsheet would take it for a formula."""
    parquet: bool = False
    latex: bool = False


def check_choices(choices: Choices, runs: Sequence[RunRecord]) -> None:
    """Raise `BadRequest` for a key or a world with a target that no run has, and for a missing library."""
    if choices.parquet:
        try:
            import pyarrow.parquet  # noqa: F401
        except ModuleNotFoundError:
            raise BadRequest(f"needs pyarrow: {command.install('parquet')}", key="parquet") from None
    check_keys(choices.by, runs)
    check_targets(choices.target, list(runs_by_world(runs)))
