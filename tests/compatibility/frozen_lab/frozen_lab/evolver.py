"""FrozenLab: the best of all so far are parents, and children are mutants of them: a (mu + lambda) evolution strategy.

A child is a parent plus normal noise. Its genes stay within their ranges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from evorl.ec.core import Evaluation, IndependentEvolution, Individual, Metrics, objectives
from evorl.ec.generational import Generational
from evorl.ec.space import Space
from evorl.ec.vectors import clip_genes, per_coordinate
from evorl.util.types import Count, Positive


@dataclass(frozen=True, kw_only=True)
class FrozenLab(IndependentEvolution):
    """The keys of conf/ec/frozen_lab.yaml, beside those of every evolution."""

    parents: Count = 5
    """Individuals that are kept as parents."""
    sigma: Positive = 0.1
    """Standard deviation of the noise on weights."""
    gene_sigma: Positive = 0.1
    """Standard deviation of the noise on genes, in units of their range."""

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(Generational):
    """Its population are the parents, the best first. `Generational` waits for generations and saves the state."""

    hyper: FrozenLab

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        return [self._child(generator) if self.population else self._initial(generator) for _ in range(self.brood)]

    def _initial(self, generator: np.random.Generator) -> Individual:
        genes = self.space.begin(generator, self.next_id)[0]
        return self.new(genes=genes, weights=self.space.weights_of(self.next_id), role="initial")

    def _child(self, generator: np.random.Generator) -> Individual:
        parent = self.population[generator.integers(len(self.population))].individual
        deviation = per_coordinate(self.space, self.hyper.gene_sigma, self.hyper.sigma)
        x = self.space.vector(parent.genes, parent.weights) + deviation * generator.standard_normal(self.space.size)
        genes, weights = self.space.individual(clip_genes(self.space, x))
        return self.new(genes=genes, weights=weights, parents=(parent.id,), role="child", memory=parent.memory)

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        pool = [*self.population, *evaluations]
        fitness = objectives(pool)[:, 0]  # -inf for those that failed
        best = [i for i in np.argsort(-fitness, kind="stable")[: self.hyper.parents] if np.isfinite(fitness[i])]
        self.population = [pool[i] for i in best]
        return {"frozen_lab/worst_parent": float(fitness[best[-1]])} if best else {}
