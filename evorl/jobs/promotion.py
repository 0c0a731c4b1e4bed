"""Jobs that are stopped early and go on: the same run with a larger budget.

A search with early stopping (`evorl.ec.early_stopping`) gives each job a part of its budget.steps. A promoted job goes
on in its directory from its last checkpoint, so it has the bits of a job that was never stopped. Its result at each
budget stays: the older ones are set aside as ``result.STEPS.json``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evorl.cli.config import read_run_config
from evorl.jobs import job
from evorl.jobs.identity import OtherRun
from evorl.record.result import read_result, sound_result
from evorl.util import run_directory

STEPS = "budget.steps"
GROWING = (STEPS,)
"""The keys that a job may have other values of than the run in its directory."""
_ASIDE = re.compile(r"result\.([0-9]{1,16})\.json")


def budget_of(directory: Path) -> int | None:
    """The budget.steps of a job's run as it is now; None if there is no run, or if its budget is the world's."""
    if not job.is_run(directory):
        return None
    budget = read_run_config(directory, "run").get("budget")
    steps = budget.get("steps") if isinstance(budget, Mapping) else None
    return steps if isinstance(steps, int) else None


def result_after(directory: Path, steps: int) -> dict[str, Any] | None:
    """The result of a job when its budget was ``steps``; None if it has none. Raises OSError, and ValueError for a
    damaged one.

    A run that went on has set it aside under its own steps, which are not fewer unless another limit ended it.
    """
    budget = budget_of(directory)
    if budget is None or budget == steps:
        return read_result(directory)
    if budget < steps:
        return None
    aside = [int(match[1]) for entry in run_directory.entries(directory) if (match := _ASIDE.fullmatch(entry.name))]
    reached = min((number for number in aside if number >= steps), default=max(aside, default=None))
    return None if reached is None else read_result(directory, f"result.{reached}.json")


def sound_result_after(directory: Path, steps: int) -> dict[str, Any] | None:
    """The same, for a job that is to run; None, with a warning, also for a damaged result that it can make again.

    Raises `OtherRun` if it went on, so that it cannot.
    """
    budget = budget_of(directory)
    if budget is None or budget <= steps:
        return sound_result(directory) if budget == steps else None
    result = result_after(directory, steps)
    if result is None:
        raise OtherRun(
            f"job {directory.name} has gone on to {budget} steps, and its result after {steps} is lost", STEPS
        )
    return result
