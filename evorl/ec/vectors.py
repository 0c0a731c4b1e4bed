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
    """An initial point [G + D]: genes drawn within their bounds, and the initial weights of an individual."""
    return space.vector(space.begin(generator, number)[0], space.weights_of(number))


def vectors(space: Space, evaluations: Iterable[Evaluation]) -> Vectors:
    """Vectors [N, G + D] of evaluated individuals, with the weights after any learning."""
    return np.array(
        [space.vector(evaluation.individual.genes, evaluation.individual.weights) for evaluation in evaluations]
    )


def memory_of_fittest(evaluations: Sequence[Evaluation]) -> StateDict | None:
    """The memory of the fittest individual, which descendants of all of them inherit; None without evaluations."""
    return evaluations[int(fitness(evaluations).argmax())].individual.memory if evaluations else None


def clip_genes(space: Space, x: Vectors) -> Vectors:
    """Vectors [..., G + D] with their genes brought within the bounds."""
    genes = len(space.genes)
    return np.concatenate([x[..., :genes].clip(0.0, 1.0), x[..., genes:]], axis=-1)


def initial_gene_velocity(space: Space, seed: int, number: int) -> Coordinates:
    """A velocity [G + D] along genes that are new to a swarm, whose particles all have the same value of them.

    It is half of the way from the middle to a random point, as at the start of SPSO 2007."""
    genes = len(space.genes)
    v = np.zeros(space.size)
    v[:genes] = seeds.generator(seed, "nudge", number).uniform(-0.25, 0.25, genes)
    return v


def per_coordinate(space: Space, of_genes: float, of_weights: float) -> Coordinates:
    """[G + D]: one number for every gene, another for every weight."""
    return np.repeat([of_genes, of_weights], [len(space.genes), space.weights])


def fitness(evaluations: Sequence[Evaluation]) -> Vectors:
    """The first objective [N]; -inf for failed individuals."""
    f = np.array([evaluation.objectives[0] for evaluation in evaluations], np.float64)
    return np.where(np.isnan(f), -np.inf, f)
