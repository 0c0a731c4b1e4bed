"""Prioritized sampling in proportion to how wrong the values of a rollout were (Schaul et al. 2016, arXiv 1511.05952).

The priority of a rollout is that of R2D2 (Kapturowski et al. 2019, section 2.3): eta times the largest absolute error
of its values, and 1 - eta times the mean one. A new rollout has the largest priority so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.replay.parts.core import BufferKeys, Encode, Part
from evorl.replay.prioritized import Priorities
from evorl.replay.rollouts import Array, Columns, Numbers
from evorl.util.types import Fraction, StateDict


@dataclass(frozen=True, kw_only=True)
class PrioritizedKeys(BufferKeys):
    alpha: Fraction = 0.9
    """Exponent of priorities; 0 is uniform."""
    beta: Fraction = 0.6
    """Exponent of the weights that correct for it; 0 does not correct."""
    eta: Fraction = 0.9
    """Share of the largest error in a priority; the rest is the mean."""

    def part(self, size: int, fragment: int, like: Columns) -> Prioritized:
        return Prioritized(self, like)


class Prioritized(Part):
    name = "prioritized"

    def __init__(self, keys: PrioritizedKeys, like: Columns) -> None:
        super().__init__(keys.capacity, like)
        self.keys = keys
        self.priorities = Priorities(keys.capacity, keys.alpha)

    def insert(self, rollouts: Columns, step: int, key: int, encode: Encode) -> None:
        super().insert(rollouts, step, key, encode)
        self.priorities.follow(self.count - self.held, self.count)

    def sample(self, size: int, step: int, key: int, encode: Encode) -> Numbers:
        """One rollout from each of ``size`` equal shares of the total priority (appendix B.2.1)."""
        return self.sampled(self.priorities.draw(key, step, 1, size).numbers[0] % self.capacity)

    def weights(self, places: Numbers) -> Array:
        """Weights [N] of sampled rollouts, the largest of them 1 (section 3.4)."""
        return self.priorities.weights(self.priorities.drawn(self.number[places]), self.keys.beta)

    def learned(self, places: Numbers, error: Array) -> None:
        eta, size = self.keys.eta, np.abs(error).astype(np.float64)
        priority = np.maximum(eta * size.max(-1) + (1 - eta) * size.mean(-1), 1e-6)
        self.priorities.update(self.number[places], priority)

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "priorities": self.priorities.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        if self.count:
            self.priorities.load_state_dict(state["priorities"])
