"""The competitive swarm optimiser (Cheng & Jin 2015, IEEE Transactions on Cybernetics 45(2), 191-204).

Particles have no memory of a best position. The swarm is paired at random. In each pair the fitter particle, w, stays,
and the other, l, learns from it and from the swarm's mean:

    v_l' = R1 v_l + R2 (x_w - x_l) + phi R3 (mean - x_l),    x_l' = x_l + v_l'                    (equations 6 and 7)

with R uniform in [0, 1) for each coordinate. Half of the swarm is evaluated in a generation.

What differs: a loser whose new position fails keeps its old position and velocity. With an odd number one particle is
left out of a generation. Velocities start at 0 for genes (as the authors'), and at random for weights, which may all
start equal.
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
from evorl.util.types import NonNegative, StateDict


@dataclass(frozen=True, kw_only=True)
class CSO(IndependentEvolution):
    """The competitive swarm optimiser."""

    phi: NonNegative = 0.0
    """Pull of the swarm's mean (the paper's choice for small swarms; more keeps swarms of hundreds together)."""
    sigma: NonNegative = 0.1
    """Standard deviation of the weights' velocities at the start."""

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


def learned(v: Vectors, loser: Vectors, winner: Vectors, mean: Vectors, phi: float, r: Vectors) -> Vectors:
    """Equation 6: the losers' velocities [N, D], with uniform numbers r [3, N, D]."""
    after: Vectors = r[0] * v + r[1] * (winner - loser) + phi * r[2] * (mean - loser)
    return after


class Strategy(Generational):
    """`population` is the swarm."""

    hyper: CSO

    def __init__(self, hyper: CSO, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.velocities: dict[int, Vectors] = {}  # of every individual proposed or in the swarm, by id

    @property
    def batch(self) -> int:
        """Half of a swarm, or as many as fill a swarm that is not full."""
        room = self.hyper.population - len(self.population)
        return min(max(self.hyper.population // 2, 1), room or self.hyper.population)

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        missing = max(self.hyper.population, 2) - len(self.population)
        if missing > 0:
            return [self._fresh(generator) for _ in range(min(missing, self.brood))]
        order = generator.permutation(len(self.population))
        pairs = order[: len(order) // 2 * 2].reshape(-1, 2)[: self.brood]
        f = fitness(self.population)
        pairs = np.where((f[pairs[:, 0]] > f[pairs[:, 1]])[:, None], pairs, pairs[:, ::-1])
        return self._losers(pairs, generator.random((3, len(pairs), self.space.size)))

    def _fresh(self, generator: np.random.Generator) -> Individual:
        genes, weights = self.space.individual(initial_vector(self.space, generator, self.next_id))
        individual = self.new(genes=genes, weights=weights, role="initial")
        start = seeds.generator(self.seed, "velocity", individual.id).normal(0.0, self.hyper.sigma, self.space.size)
        self.velocities[individual.id] = np.where(np.arange(self.space.size) < len(self.space.genes), 0.0, start)
        return individual

    def _losers(self, pairs: NDArray[np.intp], r: Vectors) -> list[Individual]:
        """The next positions of the losers, the second of each pair [N, 2] of the swarm."""
        x = vectors(self.space, self.population)
        swarm = [evaluation.individual for evaluation in self.population]
        ids = [individual.id for individual in swarm]
        winner, loser = x[pairs[:, 0]], x[pairs[:, 1]]
        v = np.array([self.velocities[ids[k]] for k in pairs[:, 1]])
        v = learned(v, loser, winner, x.mean(0), self.hyper.phi, r)
        children = []
        for (first, second), place, velocity in zip(pairs.tolist(), clip_genes(self.space, loser + v), v, strict=True):
            genes, weights = self.space.individual(place)
            parents, memory = (ids[second], ids[first]), swarm[second].memory
            children.append(self.new(genes=genes, weights=weights, parents=parents, role="learned", memory=memory))
            self.velocities[children[-1].id] = velocity
        return children

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        swarm = list(self.population)
        for evaluation, f in zip(evaluations, fitness(evaluations), strict=True):
            self._enter(swarm, evaluation, f)
        self.population = swarm
        ids = (
            {evaluation.individual.id for evaluation in swarm}
            | self._out
            | {evaluation.id for evaluation in self._queue}
        )
        ids |= {evaluation.individual.id for evaluation in self._arrived}
        self.velocities = {number: v for number, v in self.velocities.items() if number in ids}
        return {}

    def _enter(self, swarm: list[Evaluation], evaluation: Evaluation, f: float) -> None:
        """Replace the loser or, where it is gone, fill a free position or replace the worst."""
        if not np.isfinite(f):
            return
        ids = [member.individual.id for member in swarm]
        if evaluation.individual.parents and evaluation.individual.parents[0] in ids:
            swarm[ids.index(evaluation.individual.parents[0])] = evaluation
        elif len(swarm) < self.hyper.population:
            swarm.append(evaluation)
        else:
            worst = int(fitness(swarm).argmin())
            if f > swarm[worst].objectives[0]:
                swarm[worst] = evaluation

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "velocities": {str(number): v for number, v in self.velocities.items()}}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.velocities = {int(number): np.array(v) for number, v in state["velocities"].items()}

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        fresh = {number: initial_gene_velocity(self.space, self.seed, int(number)) for number in state["velocities"]}
        velocities = {number: move.scaled(v, 1, fresh[number]) for number, v in state["velocities"].items()}
        return {**super().remap_state(state, move), "velocities": velocities}
