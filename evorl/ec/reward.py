"""The config of a reward that evolves. What it does to a world: `evorl.mdp.shaped`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evorl.ec.space import Gene
from evorl.util.types import Natural, Positive

REWARD = "ec.reward."
"""How the names of genes begin that are weights of an evolved reward, and no keys."""


@dataclass(frozen=True, kw_only=True)
class EvolvedReward:
    """A reward of learners that evolves: a small network over the observation, whose weights are genes."""

    kind: Literal["none", "immediate", "potential"] = "none"
    """How it is added to the world's reward while a learner trains: f(s), or as a potential gamma f(s') - f(s)."""
    hidden: Natural = 4
    """Hidden units; 0: a linear function."""
    scale: Positive = 1.0
    """Its largest value."""
    bound: Positive = 2.0
    """The weights lie between this and its negative."""

    def genes(self, size: int) -> tuple[Gene, ...]:
        """Those of ``size`` weights."""
        return tuple(Gene(f"{REWARD}{k}", -self.bound, self.bound) for k in range(size))
