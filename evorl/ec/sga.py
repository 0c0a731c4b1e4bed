"""A genetic algorithm that keeps its elite.

Each generation the best ``elites`` of the population compete with the children for the places, so with one or more
the best is never lost (K. A. De Jong, "An analysis of the behavior of a class of genetic adaptive systems", 1975,
reproductive plan R2). Parents win binary tournaments, or are drawn from the best of the population (truncation
selection, as in F. P. Such et al., "Deep neuroevolution", arXiv 1712.06567, whose algorithm is
``selection=truncation crossover=0 elites=1``). With fewer children than places only the worst of the population go:
``offspring=1`` is the steady-state form (D. Whitley, "The GENITOR algorithm and selection pressure", 1989), in which,
with ``elites`` as large as the population, a child must be better than the worst to enter.

What differs from Such et al.: an elite keeps the fitness it has, and is not evaluated again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from evorl.ec.core import Evaluation, objectives
from evorl.ec.genetic import Breeder, Genetic, Indices, Key
from evorl.ec.space import Space
from evorl.util.types import Fraction, Natural


@dataclass(frozen=True, kw_only=True)
class SGA(Genetic):
    """An elitist genetic algorithm, generational or steady state."""

    elites: Natural = 1
    """Number of best individuals that compete with the children for a place in the next population."""
    selection: Literal["tournament", "truncation"] = "tournament"
    """Parents win binary tournaments, or are drawn from the best."""
    truncation: Fraction = 0.2
    """Share of the population that truncation draws parents from, at least one."""

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(Breeder):
    """Keeps an elite; its population is in order, the fittest first."""

    hyper: SGA

    def keys(self) -> tuple[Key, ...]:
        return (objectives(self.population)[:, 0],)

    def select(self, generator: np.random.Generator, n: int, keys: tuple[Key, ...]) -> Indices:
        if self.hyper.selection == "tournament":
            return super().select(generator, n, keys)
        return generator.integers(max(round(self.hyper.truncation * len(self.population)), 1), size=n)

    def survivors(self, old: list[Evaluation], new: list[Evaluation]) -> list[Evaluation]:
        size = self.hyper.population
        keep = max(self.hyper.elites, size - len(new))
        pool = old[:keep] + new  # the old ones first: they stay where a child is no better
        return [pool[i] for i in np.argsort(-objectives(pool)[:, 0], kind="stable")[:size]]
