"""What walking_marvin publishes."""

from __future__ import annotations

from evorl.reproduction.table import Paper, Unmeasured

PAPER = Paper(
    title="Marvin",
    source="The notebook and the README of walking_marvin: an evolution strategy that teaches a robot to walk.",
    tables=("walk",),
    unmeasured=(
        Unmeasured(
            "CartPole by the same strategy",
            "a network of 4-4-1 and a population of 20 solve it at generation 50 (one run)",
            "the notebook of walking_marvin",
            "there is no experiment of it yet; ec/cartpole.py measures the speed of such a search, not its generations",
        ),
    ),
)
