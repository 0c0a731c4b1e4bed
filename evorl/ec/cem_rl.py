"""CEM-RL: the cross-entropy method around off-policy learners (Pourchot & Sigaud 2019, arXiv 1810.01222, algorithm 1).

Half of each generation is trained with a shared critic before it plays; the other half plays as it was sampled. The
distribution learns from both (`evorl.ec.cem`). For each trained individual, one after the other, the critic first
learns with that individual as its target policy. Then the individual follows the critic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.ec import cem
from evorl.ec.cem import Sampling
from evorl.ec.core import Evaluation, Individual, Metrics
from evorl.ec.shared_critic import EVOLVED, TRAINED, CriticOrder, SharedCriticEvolution, WarmUpActions
from evorl.ec.space import Space
from evorl.util.errors import BadRequest
from evorl.util.types import Count, Positive


@dataclass(frozen=True, kw_only=True)
class CEMRL(Sampling, SharedCriticEvolution):
    """Constants of the authors' code."""

    trained: Count = 5
    """Individuals of a generation to train, its first ones."""
    sigma: Positive = 1e-3**0.5
    """Standard deviation of weights at the start (a variance of 1e-3)."""
    divide: bool = True
    antithetic: bool = True
    warm_up_actions: WarmUpActions = "policy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trained > self.population:
            raise BadRequest(f"is at most ec.population, {self.population}; got {self.trained}", "trained")
        if self.slots is not None and self.slots < self.trained and self.critic_order != "beside":
            raise BadRequest(f"is at least ec.trained, {self.trained}, which the critic learns for at once", "slots")

    @property
    def asynchronous(self) -> bool:
        return False

    @property
    def critic_order(self) -> CriticOrder:
        return "each"

    def critic_steps(self, played: int) -> int:
        return int((self.critic_ratio or 0) * played / self.trained)

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(cem.Strategy):
    def __init__(self, hyper: CEMRL, space: Space, seed: int) -> None:
        super().__init__(hyper, hyper, np.full(space.size, hyper.sigma), space, seed)
        self.trained = hyper.trained

    def ask(self, limit: int | None = None, train: bool = False) -> list[Individual]:
        """As `SharedCriticEvolver.ask`; what counts is ``train`` where a generation begins."""
        return self.take(limit, lambda generator: self._generation(generator, self.trained if train else 0))

    def _generation(self, generator: np.random.Generator, trained: int) -> list[Individual]:
        return [
            individual._replace(role=TRAINED if place < trained else EVOLVED, memory=None)
            for place, individual in enumerate(self.propose(generator))
        ]

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        metrics = super().learn(evaluations, generator)
        if self.population:
            elite = [evaluation.individual.role == TRAINED for evaluation in self.population]
            metrics["population/elites_trained"] = sum(elite) / len(elite)
        return metrics
