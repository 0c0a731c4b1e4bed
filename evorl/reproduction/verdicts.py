"""Verdicts: gates that are fixed before the runs, and how one interval lies beside another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from evorl.reproduction.scores import Floats, Score

Returns = Mapping[float, Floats]
"""The return of each seed at some steps."""


class Gate(NamedTuple):
    what: str
    algorithms: tuple[str, ...]
    """Whose seeds it needs."""
    passed: Callable[..., bool]
    """Of the `Returns` of each."""
    steps: tuple[float, ...]


def verdict(gate: Gate, returns: Mapping[str, Returns]) -> str:
    """``passed``, ``failed``, or ``not run`` where a run that it needs is missing."""
    by_algorithm = [returns.get(name, {}) for name in gate.algorithms]
    if any(not len(by_step.get(step, ())) for by_step in by_algorithm for step in gate.steps):
        return "not run"
    return "passed" if gate.passed(*by_algorithm) else "failed"


def compared(low: float, high: float, other_low: float, other_high: float) -> str:
    """How one interval lies beside another: above, below, or overlaps."""
    if not np.isfinite([low, high, other_low, other_high]).all():
        return "-"
    return "above" if low > other_high else "below" if high < other_low else "overlaps"


def beside(score: Score | None, other: Score | None) -> str:
    """The same comparison of two scores; ``-`` for a score beside itself, and where a score is missing."""
    if score is None or other is None or score is other:
        return "-"
    return compared(score.low, score.high, other.low, other.high)
