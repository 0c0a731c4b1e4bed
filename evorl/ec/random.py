"""Random search: individuals are drawn from the whole space, and the best are kept. A baseline for every evolver.

J. Bergstra and Y. Bengio, "Random search for hyper-parameter optimization", JMLR 13, 2012. The population is the best
so far by Pareto rank, then by crowding; of one objective these are the fittest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.ec.core import Evaluation, IndependentEvolution, Individual, Metrics, failed, objectives
from evorl.ec.generational import Generational
from evorl.ec.space import Space
from evorl.ops import pareto


@dataclass(frozen=True, kw_only=True)
class Random(IndependentEvolution):
    """Random search."""

    several = True
    hands_on = False

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(Generational):
    """Keeps the best."""

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        genes = self.space.begin(generator, self.next_id, self.brood)
        return [self.new(genes=x, weights=self.space.weights_of(self.next_id), role="initial") for x in genes]

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        pool = [*self.population, *evaluations]
        f = objectives(pool)
        lost = failed(f)
        self.population = [pool[i] for i in pareto.best(f, self.hyper.population) if not lost[i]]
        return {}
