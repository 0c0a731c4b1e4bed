"""The default periods of evaluations and checkpoints, and whether a config has them or others that were chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PARTS = {"eval": 10, "checkpoint": 20}
"""Default number of periods in a budget: the run's own when it began if that was smaller, else the world's."""
BUDGET = "budget.steps"


def part_of(budget: int, name: str) -> int:
    """The period of a budget; at least 1, since 0 means only at the end."""
    return max(budget // PARTS[name], 1)


def is_default(name: str, config: Mapping[str, Any], words: Sequence[str]) -> bool:
    """Whether a run's period follows from its budget. ``name``: a key of `PARTS`.

    ``config``: as it was written, with dotted keys. For null it may hold a part of the run's own budget, which a resume
    with a larger budget does not move. ``words`` are those of the command line that began the run.
    """
    every = config.get(f"{name}.every")
    if every is None:
        return True
    given = dict(word.lstrip("+").partition("=")[::2] for word in words)
    budgets = [_whole(config.get(BUDGET)), _whole(given.get(BUDGET))]
    parts = [steps // PARTS[name] for steps in budgets if steps is not None]
    return every in parts and not {name, f"{name}.every"} & {*given}


def in_steps(name: str, config: Mapping[str, Any]) -> int | None:
    """A run's period in environment steps; None where its config does not say."""
    every, budget = config.get(f"{name}.every"), _whole(config.get("mdp.budget"))
    if every is None and budget is not None:
        return part_of(budget, name)
    return _whole(every)


def _whole(value: Any) -> int | None:
    """A whole number of a config or of a word, such as 2e3; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() else None
