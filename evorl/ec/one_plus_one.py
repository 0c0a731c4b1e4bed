"""The (1+1) evolution strategy with Rechenberg's 1/5 success rule (Beyer & Schwefel 2002, algorithm in section 2.1).

A parent x has a child x + sigma N(0, I), which replaces it when it is no worse. Progress is fastest where about one
child in five is better than its parent. So after a number of trials sigma shrinks by a factor if fewer of the last
trials were better, and grows by it if more were. With ``population`` children at a time it is a (1+lambda) strategy:
the best child competes, and each counts as a trial.

What differs: the window of outcomes has a maximum length, since Schwefel's ten trials per dimension would never fill
for a network. A failed child is never better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.ec.core import Evaluation, IndependentEvolution, Individual, Metrics
from evorl.ec.generational import Generational
from evorl.ec.space import Space
from evorl.ec.vectors import fitness, initial_vector, per_coordinate, vectors
from evorl.util.types import Count, Fraction, Positive, Shrinking, StateDict


@dataclass(frozen=True, kw_only=True)
class OnePlusOne(IndependentEvolution):
    """The rule's constants are Schwefel's."""

    population: Count = 1
    """Children at a time; more is a (1+lambda) strategy."""
    sigma: Positive = 0.1
    """Standard deviation of the steps of weights at the start."""
    gene_sigma: Positive = 0.3
    """Standard deviation of the steps of genes at the start, in units of their range."""
    target: Fraction = 0.2
    """Share of better children at which sigma stays (Rechenberg's 1/5)."""
    factor: Shrinking = 0.85
    """What sigma is multiplied or divided by (Schwefel's 0.817 < c < 1)."""
    window: Count | None = None
    """Trials that the share is taken over; null is ten for each dimension, at most 100."""
    every: Count | None = None
    """Trials between two changes of sigma; null is a tenth of the window (Schwefel: the number of dimensions)."""

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(Generational):
    """Its population is the parent."""

    hyper: OnePlusOne

    def __init__(self, hyper: OnePlusOne, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.window = hyper.window or min(10 * max(space.size, 1), 100)
        self.every = hyper.every or max(self.window // 10, 1)
        self.scale = 1.0  # of both sigmas
        self.outcomes: list[bool] = []  # the last ones: whether a child was better than its parent
        self.trials = 0

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        return [self._child(generator) for _ in range(self.brood)]

    def _child(self, generator: np.random.Generator) -> Individual:
        if not self.population:
            genes, weights = self.space.individual(initial_vector(self.space, generator, self.next_id))
            return self.new(genes=genes, weights=weights, role="initial")
        step = self.scale * per_coordinate(self.space, self.hyper.gene_sigma, self.hyper.sigma)
        x = vectors(self.space, self.population)[0] + step * generator.standard_normal(self.space.size)
        genes, weights = self.space.individual(x)
        parent = self.population[0].individual
        return self.new(genes=genes, weights=weights, role="child", parents=(parent.id,), memory=parent.memory)

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        f = fitness(evaluations)
        best = int(f.argmax())
        if self.population:
            before = fitness(self.population)[0]
            for better in (f > before).tolist():
                self._adapt(better)
        if np.isfinite(f[best]) and (not self.population or f[best] >= before):
            self.population = [evaluations[best]]
        return {"population/sigma": self.scale * self.hyper.sigma}

    def _adapt(self, better: bool) -> None:
        """The 1/5 rule after one trial."""
        self.trials += 1
        self.outcomes = [*self.outcomes, better][-self.window :]
        if len(self.outcomes) == self.window and self.trials % self.every == 0:
            share = sum(self.outcomes) / self.window
            if share != self.hyper.target:
                self.scale *= self.hyper.factor if share < self.hyper.target else 1 / self.hyper.factor

    def state_dict(self) -> StateDict:
        outcomes = np.array(self.outcomes, bool)
        return {**super().state_dict(), "scale": self.scale, "outcomes": outcomes, "trials": self.trials}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.scale, self.trials = state["scale"], state["trials"]
        self.outcomes = np.asarray(state["outcomes"]).tolist()
