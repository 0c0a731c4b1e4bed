"""Prioritized sampling in proportion to how wrong the values of a rollout were (Schaul et al. 2016, arXiv 1511.05952).

The priority of a rollout is that of R2D2 (Kapturowski et al. 2019, section 2.3): eta times the largest absolute error
of its values, and 1 - eta times the mean one. A new rollout has the largest priority so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.replay.parts.core import Encode, Part, PartKeys
from evorl.replay.rollouts import Array, Columns, Numbers
from evorl.util import seed as seeds
from evorl.util.types import Fraction, StateDict


@dataclass(frozen=True, kw_only=True)
class PrioritizedKeys(PartKeys):
    alpha: Fraction = 0.9
    """Exponent of priorities; 0 is uniform."""
    beta: Fraction = 0.6
    """Exponent of the weights that correct for it; 0 does not correct."""
    eta: Fraction = 0.9
    """Share of the largest error in a priority; the rest is the mean."""


class Prioritized(Part):
    name = "prioritized"

    def __init__(self, keys: PrioritizedKeys, like: Columns) -> None:
        super().__init__(keys.capacity, like)
        self.keys = keys
        self.priority = np.zeros(keys.capacity)
        self.largest = 1.0

    def insert(self, rollouts: Columns, step: int, key: int, encode: Encode) -> None:
        places = self._next(len(next(iter(rollouts.values())))) % self.capacity
        super().insert(rollouts, step, key, encode)
        self.priority[places] = self.largest

    def probabilities(self) -> Array:
        """Of sampling each rollout held (eq. 1 of Schaul et al.)."""
        powers = self.priority[: self.held] ** self.keys.alpha
        found: Array = powers / powers.sum()
        return found

    def sample(self, size: int, step: int, key: int, encode: Encode) -> Numbers:
        """One rollout from each of ``size`` equal shares of the total priority (appendix B.2.1)."""
        limits = np.cumsum(self.probabilities())
        at = (np.arange(size) + seeds.generator(key, "sample", step).random(size)) / size
        return self.sampled(np.searchsorted(limits, at * limits[-1], side="right").clip(max=self.held - 1))

    def weights(self, places: Numbers) -> Array:
        """Weights [N] of sampled rollouts, the largest of them 1 (section 3.4)."""
        weight = (self.held * self.probabilities()[places]) ** -self.keys.beta
        return np.asarray(weight / weight.max(), np.float32)

    def learned(self, places: Numbers, error: Array) -> None:
        eta, size = self.keys.eta, np.abs(error)
        self.priority[places] = np.maximum(eta * size.max(-1) + (1 - eta) * size.mean(-1), 1e-6)
        self.largest = max(self.largest, float(self.priority[places].max()))

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "largest": self.largest}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        if self.count:
            self.largest = state["largest"]

    def _tables(self) -> tuple[str, ...]:
        return (*super()._tables(), "priority")
