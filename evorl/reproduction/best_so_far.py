"""The best individual so far in the evolution of a run, over environment steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evorl.analysis.population import read_population_log
from evorl.analysis.runs import RunRecord


def best_so_far(run: RunRecord, failed: float) -> dict[str, list[float]] | None:
    """Return ``steps`` and the ``best`` fitness up to each; ``failed`` stands for one that failed.

    None if the run has no evolution, or no result yet.
    """
    log = read_population_log(run)
    if log is None or not run.result or run.result.get("fitness") is None:
        return None
    best = np.maximum.accumulate(np.where(np.isfinite(log.fitness), log.fitness, failed))
    return {"steps": log.steps.tolist(), "best": best.tolist()}


def best_at(run: Mapping[str, Any], step: float, failed: float) -> float:
    """Return the best fitness up to a step of what `best_so_far` returned; ``failed`` before the first evaluation."""
    known = int(np.searchsorted(run["steps"], step, side="right"))
    return float(run["best"][known - 1]) if known else failed


def first_at(run: Mapping[str, Any], fitness: float, beyond: bool = False) -> float | None:
    """Return the step at which the best first had a fitness, or with ``beyond`` a higher one; None if it never had."""
    best = np.array(run["best"])
    there = np.flatnonzero(best > fitness if beyond else best >= fitness)
    return float(run["steps"][there[0]]) if len(there) else None
