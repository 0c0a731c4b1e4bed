"""NSGA-III: K. Deb, H. Jain, "An evolutionary many-objective optimization algorithm using reference-point-based
nondominated sorting approach, part I: solving problems with box constraints", IEEE Transactions on Evolutionary
Computation 18(4), 2014.

Fronts survive as in NSGA-II. Reference directions are spread evenly over the objectives. Of the first front that does
not fit, the individuals near the least crowded directions survive. This replaces the crowding distance, which says
little with three or more objectives.

What differs: the ideal point is that of the present parents and children, as in the paper's Algorithm 2, not of all
generations, as in its text; where the extreme points span no plane (the paper leaves that open), the range of the
first front stands for the intercepts; directions have one layer, where the paper has two for eight objectives and more;
policies' weights come from the parent of the better front, as in `evorl.ec.nsga2`; failed individuals do not survive.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Evaluation, objectives
from evorl.ec.genetic import Breeder, Genetic, Indices, Key
from evorl.ec.space import Space
from evorl.ops import pareto
from evorl.util import seed as seeds
from evorl.util.types import Count, Fraction, NonNegative

Points = NDArray[np.float64]
ASIDE = 1e-6  # an axis' weight for the other objectives
FLAT = 1e-12  # a range that is none
FAR = 1e100  # infinity, with a square that is a number


@dataclass(frozen=True, kw_only=True)
class NSGA3(Genetic):
    """NSGA-III, generational or steady state."""

    several = True
    crossover: Fraction = 1.0
    crossover_eta: NonNegative = 30.0
    divisions: Count | None = None
    """Parts of each objective between directions; null: no more directions than individuals, or objectives."""

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(Breeder):
    """Keeps nondominated individuals near each reference direction."""

    hyper: NSGA3

    def keys(self) -> tuple[Key, ...]:
        return (-pareto.ranks(objectives(self.population)).astype(np.float64),)

    def select(self, generator: np.random.Generator, n: int, keys: tuple[Key, ...]) -> Indices:
        """Parents at random (section IV-F), each equally often, give or take one."""
        size = len(self.population)
        return generator.permuted(np.tile(np.arange(size), (-(-n // size), 1)), axis=1).ravel()[:n]

    def survivors(self, old: list[Evaluation], new: list[Evaluation]) -> list[Evaluation]:
        """Algorithm 1."""
        pool, n = old + new, self.hyper.population
        f = objectives(pool)
        rank = pareto.ranks(f)
        order = np.argsort(rank, kind="stable")
        if len(pool) <= n:
            return [pool[i] for i in order]
        last = rank[order[n - 1]]  # the front that does not fit whole, or just does
        kept, some = order[rank[order] < last], order[rank[order] == last]
        among = np.r_[kept, some]
        x = normalised(-np.clip(f[among], -FAR, FAR), rank[among] == 0)
        near, distance = nearest(x, directions(f.shape[1], n, self.hyper.divisions))
        generator = seeds.generator(self.seed, "niches", self.generation)
        chosen = niches(generator, near[: len(kept)], near[len(kept) :], distance[len(kept) :], n - len(kept))
        return [pool[i] for i in np.r_[kept, some[chosen]]]


def directions(count: int, most: int, divisions: int | None = None) -> Points:
    """Points [H, M] spread evenly over the simplex of M = ``count`` objectives, multiples of 1 / divisions (IV-B).

    As many as C(M + p - 1, p) for p ``divisions``; of None, the largest p for which that is not above ``most``.
    """
    if count == 1:
        return np.ones((1, 1))
    if divisions is None:
        divisions = 1
        while comb(count + divisions, divisions + 1) <= most:
            divisions += 1
    bars = np.array([*combinations(range(count + divisions - 1), count - 1)])  # between the parts of each
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, count + divisions - 1)))
    parts: Points = np.diff(edges, axis=1) - 1.0
    return parts / divisions


def normalised(f: Points, first: NDArray[np.bool_]) -> Points:
    """Values [N, M] to minimise, from the ideal point 0 to 1 where the plane of the extreme points meets each axis.

    Section IV-C, Algorithm 2. ``first`` tells the first front.
    """
    moved: Points = f - f.min(0)
    weights = np.where(np.eye(f.shape[1], dtype=bool), 1.0, ASIDE)
    scalars = (moved[:, None] / weights).max(2)  # equation 4, of each point for each axis
    extremes = moved[scalars.argmin(0)]
    intercepts = moved[first].max(0)
    if np.linalg.matrix_rank(extremes) == len(extremes):
        plane = np.linalg.solve(extremes, np.ones(len(extremes)))
        if (plane > FLAT).all():
            intercepts = 1 / plane
    return moved / np.where(intercepts > FLAT, intercepts, 1.0)


def nearest(x: Points, to: Points) -> tuple[Indices, Points]:
    """Of each point [N, M] the nearest line from 0 through a direction [H, M], and its distance (Algorithm 3)."""
    units = to / np.linalg.norm(to, axis=1, keepdims=True)
    away = np.linalg.norm(x[:, None] - (x @ units.T)[:, :, None] * units, axis=2)
    near = away.argmin(1)
    return near, away[np.arange(len(x)), near]


def niches(generator: np.random.Generator, kept: Indices, near: Indices, distance: Points, n: int) -> Indices:
    """The survivors [n] of the last front (Algorithm 4), chosen one by one at the direction with the fewest.

    Each point has its direction (``near``) and its ``distance`` from it; ``kept`` are the directions of the points
    already chosen. An empty direction takes its nearest point, any other a random one.
    """
    places = 1 + max(kept.max(initial=0), near.max())
    count = np.bincount(kept, minlength=places)
    left = {j: np.flatnonzero(near == j).tolist() for j in np.unique(near).tolist()}
    chosen: list[int] = []
    while len(chosen) < n:
        fewest = min(count[j] for j in left)
        j = int(generator.choice([j for j in left if count[j] == fewest]))
        of = left[j]
        place = int(np.argmin(distance[of])) if count[j] == 0 else int(generator.integers(len(of)))
        chosen.append(of.pop(place))
        count[j] += 1
        if not of:
            del left[j]
    return np.array(chosen, np.intp)
