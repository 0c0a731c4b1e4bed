"""What walking_marvin publishes."""

from __future__ import annotations

from evorl.reproduction.table import Paper

PAPER = Paper(
    title="Marvin",
    source="The notebook and the README of walking_marvin: an evolution strategy that teaches a robot to walk.",
    tables=("walk", "cartpole"),
)
