"""What evolvers of plain vectors share: an individual is a vector [G + D], its genes in units of their range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Evaluation
from evorl.ec.space import Coordinates, Space
from evorl.util import seed as seeds
from evorl.util.types import StateDict

Vectors = NDArray[np.float64]


def initial_vector(space: Space, generator: np.random.Generator, number: int) -> Coordinates:
    """A point to begin at [G + D]: genes drawn within their bounds, the weights that an individual begins with."""
    return space.vector(space.begin(generator, number)[0], space.weights_of(number))


def vectors(space: Space, evaluations: Iterable[Evaluation]) -> Vectors:
    """[N, G + D] of individuals as they came back, so what a learner changed in their weights counts."""
    return np.array([space.vector(one.individual.genes, one.individual.weights) for one in evaluations])


def memory_of_fittest(evaluations: Sequence[Evaluation]) -> StateDict | None:
    """What the fittest knows beside its weights, and so does who descends from all of them; None of nobody."""
    return evaluations[int(fitness(evaluations).argmax())].individual.memory if evaluations else None


def clip_genes(space: Space, x: Vectors) -> Vectors:
    """Vectors [..., G + D] with their genes brought within the bounds."""
    genes = len(space.genes)
    return np.concatenate([x[..., :genes].clip(0.0, 1.0), x[..., genes:]], axis=-1)


def initial_gene_velocity(space: Space, seed: int, number: int) -> Coordinates:
    """[G + D]: a velocity along genes that are new to a swarm, whose particles all have the same value of them: half of
    the way from the middle to a random point, as at the start of SPSO 2007."""
    genes = len(space.genes)
    v = np.zeros(space.size)
    v[:genes] = seeds.generator(seed, "nudge", number).uniform(-0.25, 0.25, genes)
    return v


def per_coordinate(space: Space, of_genes: float, of_weights: float) -> Coordinates:
    """[G + D]: one number for every gene, another for every weight."""
    return np.repeat([of_genes, of_weights], [len(space.genes), space.weights])


def fitness(evaluations: Sequence[Evaluation]) -> Vectors:
    """The first objective [N]; -inf for who failed."""
    f = np.array([one.objectives[0] for one in evaluations], np.float64)
    return np.where(np.isnan(f), -np.inf, f)
