"""ACEM-RL: CEM-RL without generations (Lee et al. 2020, after the asynchronous updates of Glasmachers 2013).

A window keeps the last P individuals, evolved or trained. With each new one, CEM's equations are applied to the elite
of the window: the mean takes a P-th of the step, the variance all of it.

    mu'     = mu + (sum_i lambda_i z_i - mu) / P
    sigma^2 = sum_i lambda_i (z_i - mu)^2 [/ number of elites] + epsilon

Nothing is learned until the window is full. A failed individual does not enter it. epsilon decays P times as slowly as
in CEM-RL, which learns once for P.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.ec.cem import elite_of, elite_weights, refit
from evorl.ec.core import Metrics
from evorl.ec.shared_critic import TRAINED, SteadyState, SteadyStateEvolution
from evorl.ec.space import Coordinates, Space
from evorl.ec.vectors import vectors
from evorl.util.types import Fraction, NonNegative, StateDict


@dataclass(frozen=True, kw_only=True)
class ACEMRL(SteadyStateEvolution):
    elite: Fraction = 0.5
    """Share of the window that the next distribution is made of, at least one."""
    divide: bool = True
    """Divide the spread by the number of elites once more, as the authors' code does."""
    noise: NonNegative = 1e-3
    """What is added to the variance at the start, epsilon."""
    noise_end: NonNegative = 1e-5
    """What that falls to."""
    noise_decay: Fraction = 0.95
    """What multiplies its distance to the end in P individuals."""

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(SteadyState):
    def __init__(self, hyper: ACEMRL, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.hyper, self.noise = hyper, hyper.noise

    def update(self, x: Coordinates, f: float, mean_fitness: float) -> Metrics:
        h, size = self.hyper, self.hyper.population
        if len(self.population) < size or f == -np.inf:  # a failed individual is no step
            return {}
        self.noise = h.noise_end + h.noise_decay ** (1 / size) * (self.noise - h.noise_end)
        best = elite_of(self.population, h.elite)
        if not best:
            return {}
        elite = vectors(self.space, best)
        mean, variance = refit(elite, elite_weights(len(elite), "log"), self.mean, self.noise, h.divide)
        self.mean, self.variance = self.mean + (mean - self.mean) / size, variance
        return {
            "population/elites_trained": sum(evaluation.individual.role == TRAINED for evaluation in best) / len(best)
        }

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "noise": self.noise}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.noise = state["noise"]
