"""NSGA-II: K. Deb, A. Pratap, S. Agarwal, T. Meyarivan, "A fast and elitist multiobjective genetic algorithm:
NSGA-II", IEEE Transactions on Evolutionary Computation 6(2), 2002.

Parents win binary tournaments by rank, then by crowding distance (the operator ≺_n, section III-B). Their children
join them, and the best half of both, by rank and then by crowding, is the next population (section III-C).

What differs: crowding for the tournament is measured among the survivors, not among parents and children together, so
the population is the whole state. Policies' weights come from the fitter parent or layer by layer, as in Lamarckian's
NSGA-II. Failed individuals do not survive. ``offspring=1`` is the steady-state form; ``asynchronous=true`` is
Lamarckian's: it breeds from the current population while other individuals are still being evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.ec.core import Evaluation, objectives
from evorl.ec.genetic import Breeder, Genetic, Key
from evorl.ec.space import Space
from evorl.ops import pareto


@dataclass(frozen=True, kw_only=True)
class NSGA2(Genetic):
    """NSGA-II, generational or steady state."""

    several = True

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(Breeder):
    """Keeps nondominated individuals that are spread out."""

    def keys(self) -> tuple[Key, ...]:
        f = objectives(self.population)
        rank = pareto.ranks(f)
        return -rank.astype(np.float64), pareto.crowding(f, rank)

    def survivors(self, old: list[Evaluation], new: list[Evaluation]) -> list[Evaluation]:
        pool = old + new
        return [pool[i] for i in pareto.best(objectives(pool), self.hyper.population)]
