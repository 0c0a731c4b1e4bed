"""What walking_marvin publishes."""

from __future__ import annotations

from evorl.reproduction.table import Paper, Unmeasured

PAPER = Paper(
    title="Marvin",
    source="The notebook and the README of walking_marvin: an evolution strategy that teaches a robot to walk.",
    tables=("walk", "cartpole"),
    unmeasured=(
        Unmeasured(
            "Two logs of 100 generations in one process, with learning rates of 0.03 and 0.05",
            "the mean return rises from -77 to about 100, and from -74 to 152",
            "the notebook of walking_marvin",
            "the log of 300 generations shows the same strategy for longer",
        ),
    ),
)
