"""Particle swarm optimisation with the global best (Kennedy & Eberhart 1995; inertia: Shi & Eberhart 1998).

Every particle has a place x, a velocity v and the best p that it has found; g is the best of all:

    v' = w v + c1 R1 (p - x) + c2 R2 (g - x),    x' = x + v'        R uniform in [0, 1), for each coordinate

The defaults are Clerc's constriction: kappa = 0.7298 and phi = 4.1 make w = kappa and c1 = c2 = kappa phi / 2 (Clerc &
Kennedy 2002; Eberhart & Shi 2000). A particle that meets a bound of its genes stops there: that part of its velocity
is zeroed. A particle continues from the weights that its evaluation returned, so learning counts.

A particle that has only failed has no best and restarts at a random position. One that fails later turns back from
its position.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Evaluation, IndependentEvolution, Individual, Metrics
from evorl.ec.generational import Generational
from evorl.ec.space import Space
from evorl.ec.space_change import SpaceChange
from evorl.ec.vectors import Vectors, clip_genes, fitness, initial_gene_velocity, initial_vector, vectors
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.types import NonNegative, StateDict


@dataclass(frozen=True, kw_only=True)
class PSO(IndependentEvolution):
    """The global-best swarm of Eberhart & Shi 2000."""

    inertia: NonNegative = 0.7298
    """What is left of the velocity, w."""
    own: NonNegative = 1.49618
    """c1, the pull of a particle's own best."""
    swarm: NonNegative = 1.49618
    """c2, the pull of the swarm's best."""
    sigma: NonNegative = 0.1
    """Standard deviation of the weights' velocities at the start; genes have half of the way to a random point."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.asynchronous and self.slots is not None and self.slots > self.population:
            raise BadRequest(
                f"{self.slots} is more than the population, whose particles are at one place each", "slots"
            )

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


def velocity(hyper: PSO, v: Vectors, x: Vectors, own: Vectors, best: Vectors, r: Vectors) -> Vectors:
    """v' [N, D] of particles at x [N, D], with uniform numbers r [2, N, D]."""
    after: Vectors = hyper.inertia * v + hyper.own * r[0] * (own - x) + hyper.swarm * r[1] * (best - x)
    return after


class Strategy(Generational):
    """Moves particles by generations. An asynchronous swarm moves idle particles in the order of their return.

    `population` are the particles' bests.
    """

    hyper: PSO

    def __init__(self, hyper: PSO, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.free = [*range(hyper.population)]  # particles that are not in flight
        self.flying: dict[int, int] = {}  # the particle of each id in flight
        self.bests: dict[int, Evaluation] = {}
        self.x, self.v = np.zeros((2, hyper.population, space.size))
        for k in range(hyper.population):
            self._throw(k, k, seeds.generator(seed, "start", k))

    @property
    def batch(self) -> int:
        """One evaluation at a time in an asynchronous swarm."""
        return 1

    def _throw(self, k: int, number: int, generator: np.random.Generator) -> None:
        """A random position and velocity (as in SPSO 2007) for the individual with this number."""
        genes = len(self.space.genes)
        self.x[k] = initial_vector(self.space, generator, number)
        self.v[k] = generator.normal(0.0, self.hyper.sigma, self.space.size)
        self.v[k, :genes] = (generator.random(genes) - self.x[k, :genes]) / 2

    def _may_propose(self, some: bool) -> bool:
        return bool(self.free) and super()._may_propose(some)

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        ready, self.free = self.free[: self.brood], self.free[self.brood :]
        if self.proposed:
            self._fly(ready, generator)
        return [self._child(k, *self.space.individual(self.x[k])) for k in ready]

    def _child(self, k: int, genes: Vectors, weights: NDArray[np.float32] | None) -> Individual:
        self.flying[self.next_id] = k
        if k not in self.bests:
            return self.new(genes=genes, weights=weights, role="initial")
        best = self.bests[k].individual
        return self.new(genes=genes, weights=weights, parents=(best.id,), role="moved", memory=best.memory)

    def _fly(self, rows: list[int], generator: np.random.Generator) -> None:
        bests = self.bests
        if bests:
            x = self.x[rows]
            own = np.array([vectors(self.space, [bests[k]])[0] if k in bests else self.x[k] for k in rows])
            leader = max(sorted(bests), key=lambda k: bests[k].objectives[0])
            (best,) = vectors(self.space, [bests[leader]])
            v = velocity(self.hyper, self.v[rows], x, own, best, generator.random((2, *x.shape)))
            self.x[rows] = clip_genes(self.space, x + v)
            self.v[rows] = np.where(self.x[rows] == x + v, v, 0.0)
        for number, k in enumerate(rows, self.next_id):
            if k not in bests:
                self._throw(k, number, generator)

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        for evaluation, f in zip(evaluations, fitness(evaluations), strict=True):
            k = self.flying.pop(evaluation.individual.id)
            self.free.append(k)
            self.x[k] = self.space.vector(evaluation.individual.genes, evaluation.individual.weights)
            if np.isfinite(f) and (k not in self.bests or f > self.bests[k].objectives[0]):
                self.bests[k] = evaluation
        self.population = [self.bests[k] for k in sorted(self.bests)]
        return {}

    def state_dict(self) -> StateDict:
        flying = {str(number): k for number, k in self.flying.items()}
        moving = {"x": self.x.copy(), "v": self.v.copy(), "free": list(self.free), "flying": flying}
        return {**super().state_dict(), **moving, "bests": sorted(self.bests)}

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        particles = range(self.hyper.population)
        x = np.array([move.place(state["x"][k], k) for k in particles])
        fresh = np.array([initial_gene_velocity(self.space, self.seed, k) for k in particles])
        return {**super().remap_state(state, move), "x": x, "v": move.scaled(state["v"], 1, fresh)}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.x, self.v = np.array(state["x"]), np.array(state["v"])
        if "flying" not in state:  # a state of an older version, whose particles took turns
            size, waiting = self.hyper.population, {individual.id for individual in self._queue} | self._out
            waiting |= {evaluation.individual.id for evaluation in self._arrived}
            flying = {str(number): number % size for number in sorted(waiting)}
            bests = [evaluation.individual.id % size for evaluation in self.population]
            free = [k for k in range(size) if k not in flying.values()]
            state = {**state, "free": free, "flying": flying, "bests": bests}
        self.free, self.flying = list(state["free"]), {int(number): k for number, k in state["flying"].items()}
        self.bests = dict(zip(state["bests"], self.population, strict=True))
