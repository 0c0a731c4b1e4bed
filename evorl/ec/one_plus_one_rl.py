"""The (1+1) evolution strategy with gradients, as a baseline of AES-RL (Lee et al. 2020).

An individual x ~ N(mu, v I), evolved or trained, replaces the mean if its return is above the mean's, which is
evaluated anew each time. The variance grows by a factor if more than a fifth of the last trials were better
(Rechenberg's rule), else it shrinks by it.

What differs from the authors' code: the window of trials slides. There the first ten trials decide for ever, which
``sliding=false`` repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.ec.core import Metrics
from evorl.ec.shared_critic import MeanComparing, SteadyState
from evorl.ec.space import Coordinates, Space
from evorl.util.types import Count, Fraction, Shrinking, StateDict


@dataclass(frozen=True, kw_only=True)
class OnePlusOneRL(MeanComparing):
    target: Fraction = 0.2
    """Share of better individuals above which the variance grows."""
    factor: Shrinking = 0.99
    """What the variance is multiplied or divided by."""
    window: Count = 10
    """Trials that the share is taken over."""
    sliding: bool = True
    """Whether the window moves on; false keeps the first trials, as the authors' code does."""

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(SteadyState):
    def __init__(self, hyper: OnePlusOneRL, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.hyper = hyper
        self.outcomes: list[bool] = []  # whether an individual was better than the mean

    def update(self, x: Coordinates, f: float, mean_fitness: float) -> Metrics:
        h, better = self.hyper, f > mean_fitness
        if not np.isfinite(mean_fitness):  # nothing to compare with
            return {}
        if better:
            self.mean = x
        if h.sliding or len(self.outcomes) < h.window:
            self.outcomes = [*self.outcomes, better][-h.window :]
        if len(self.outcomes) == h.window:
            grows = sum(self.outcomes) / h.window > h.target
            self.variance = np.maximum(self.variance * (1 / h.factor if grows else h.factor), h.sigma_min**2)
        return {"population/success_rate": sum(self.outcomes) / len(self.outcomes)}

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "outcomes": np.array(self.outcomes, bool)}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.outcomes = np.asarray(state["outcomes"]).tolist()
