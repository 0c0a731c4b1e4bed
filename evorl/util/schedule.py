"""Numbers that change as a run goes on.

A schedule is a config value: a plain number is constant, ``{start, end, steps, kind, power}`` anneals. Its length
is given in environment steps; a larger budget does not stretch it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from typing import Literal, get_type_hints

from evorl.util.types import NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class Anneal:
    """From ``start`` to ``end`` within ``steps`` environment steps, then constant."""

    start: NonNegative
    """At the beginning."""
    end: NonNegative
    """At the end."""
    steps: Positive
    """Environment steps to the end."""
    kind: Literal["linear", "cosine"] = "linear"
    """Shape of the way."""
    power: Positive = 1.0
    """Exponent of what is left of the way: 2 with ``linear`` is quadratic decay."""

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.start, self.end, self.steps))):
            raise ValueError("start, end and steps must be finite")

    def __str__(self) -> str:
        """In tables: ``0.003→0 in 100000``."""
        shape = ("" if self.kind == "linear" else f" {self.kind}") + ("" if self.power == 1 else f" ^{self.power:g}")
        return f"{self.start:g}→{self.end:g} in {self.steps:g}{shape}"


Schedule = NonNegative | Anneal


@cache
def scheduled_fields(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass whose type is `Schedule`."""
    types = get_type_hints(kind, include_extras=True)
    return tuple(field.name for field in fields(kind) if types[field.name] == Schedule)


def value(schedule: Schedule, step: float) -> float:
    """The schedule's number after ``step`` environment steps of the run."""
    if not isinstance(schedule, Anneal):
        return float(schedule)
    progress = min(max(step / schedule.steps, 0.0), 1.0)
    if schedule.kind == "cosine":
        progress = (1 - math.cos(math.pi * progress)) / 2  # Loshchilov & Hutter 2017, eq. 5, a single period
    if schedule.power != 1:
        progress = 1 - (1 - progress) ** schedule.power
    return (1 - progress) * schedule.start + progress * schedule.end
