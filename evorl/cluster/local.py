"""Everything in one process: the default cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Local:
    """No workers: the run's members live in the process that reads this."""
