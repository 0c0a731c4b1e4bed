"""CMA-ES (Hansen 2016, arXiv 1604.00772), over the package `cmaes` (Nomura & Shibata 2024, arXiv 2402.01373).

Samples come from N(m, sigma^2 C); mean, step size and covariance follow the ranked samples. In many dimensions C is
diagonal: sep-CMA-ES (Ros & Hansen 2008), linear in time and memory. Coordinates are scaled so that sigma starts at 1.

What differs from the package: samples of a generation are drawn at once, from keyed generators; genes are kept within
their bounds by drawing again (the package's way) a few times, then by clipping; individuals that failed rank last,
where the mean is, and their weights are left out of the covariance, so they say nothing about either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import cmaes
import numpy as np
from threadpoolctl import ThreadpoolController

from evorl.ec.core import Evaluation, IndependentEvolution, Individual, Metrics
from evorl.ec.generational import Generational, without_pending_generation
from evorl.ec.space import Space
from evorl.ec.space_change import SpaceChange
from evorl.ec.vectors import Vectors, clip_genes, fitness, initial_vector, memory_of_fittest, per_coordinate, vectors
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.saved import restore, saved
from evorl.util.types import Count, Positive, StateDict

BOTH = ("_mean", "_sigma", "_C", "_D", "_p_sigma", "_pc", "_g")
MOVING = {cmaes.CMA: (*BOTH, "_B"), cmaes.SepCMA: BOTH}
"""The attributes of the package's objects that change; all others follow from the hyper-parameters."""

REDRAWS = 10  # in many dimensions hardly any sample is within all bounds
SMALLEST = 1e-30  # step size, long after anything is left to find: the package divides by it


BLAS = ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """The last bits of matrix products and eigenvectors depend on the number of threads."""
    with BLAS.limit(limits=1, user_api="blas"):
        yield


@dataclass(frozen=True, kw_only=True)
class CMAES(IndependentEvolution):
    """CMA-ES sets all of its own constants from the number of dimensions and the population."""

    population: Count = 30
    """Individuals in a generation, at least 4."""
    sigma: Positive = 0.1
    """Standard deviation of weights at the start."""
    gene_sigma: Positive = 0.3
    """Standard deviation of genes at the start, in units of their range (Hansen 2016, appendix B.1: about 0.3)."""
    separable_above: Count = 200
    """Dimensions beyond which the covariance is diagonal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population < 4:
            raise BadRequest("must be at least 4: fewer individuals say nothing about a covariance", "population")

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(Generational):
    """Keeps the package's object; its population is the last generation without the failed individuals."""

    hyper: CMAES

    def __init__(self, hyper: CMAES, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.scales = per_coordinate(space, hyper.gene_sigma, hyper.sigma)
        kind = cmaes.SepCMA if space.size > hyper.separable_above else cmaes.CMA
        start = initial_vector(space, seeds.generator(seed, "start"), 0) / self.scales
        self.cma = kind(start, 1.0, population_size=hyper.population)

    @one_thread()
    def propose(self, generator: np.random.Generator) -> list[Individual]:
        pairs = map(self.space.individual, self._samples(generator))
        memory = memory_of_fittest(self.population)
        return [self.new(genes=genes, weights=weights, role="sampled", memory=memory) for genes, weights in pairs]

    def _samples(self, generator: np.random.Generator) -> Vectors:
        """[N, G + D], drawn again where genes are out of bounds."""
        x = self._normal(generator, self.brood)
        for _ in range(REDRAWS):
            out = np.flatnonzero((x != clip_genes(self.space, x)).any(1))
            if not len(out):
                break
            x[out] = self._normal(generator, len(out))
        return clip_genes(self.space, x)

    def _normal(self, generator: np.random.Generator, n: int) -> Vectors:
        """[n, G + D] from N(m, sigma^2 C), C = B D^2 B^T, all at once; the package multiplies matrices for each one."""
        z = generator.standard_normal((n, self.space.size))
        roots = self.cma._eigen_decomposition()
        y = z * roots if isinstance(self.cma, cmaes.SepCMA) else z * roots[1] @ roots[0].T
        x: Vectors = (self.cma.mean + self.cma._sigma * y) * self.scales
        return x

    @one_thread()
    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        f = fitness(evaluations)
        sound = np.isfinite(f)
        self.population = [evaluation for evaluation, fine in zip(evaluations, sound, strict=True) if fine]
        if sound.any():
            x = np.where(sound[:, None], vectors(self.space, evaluations) / self.scales, self.cma.mean)
            before = self.cma._C
            self.cma.tell([(point, -worth) for point, worth in zip(x, f.tolist(), strict=True)])
            # eq. 47 takes cμ w C for a weight and gives cμ w y yᵀ, where y of who failed is 0: give back what it took
            self.cma._C += self.cma._cmu * self.cma._weights[sound.sum() :].sum() * before
            self.cma._sigma = float(max(self.cma._sigma, SMALLEST))
        return {"population/sigma": self.cma._sigma}

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "cma": saved(self.cma, MOVING[type(self.cma)])}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        restore(self.cma, state["cma"], state["cma"])

    @one_thread()
    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        """A new gene is independent of the others, and as wide as at the start; none becomes wider than that by a
        narrower range, since nearly all samples would be at its bounds."""
        fields, genes = state["cma"], len(self.space.genes)
        before = per_coordinate(move.before, self.hyper.gene_sigma, self.hyper.sigma)
        c = np.asarray(fields["_C"])
        if c.ndim < self.cma._C.ndim:
            c = np.diag(c)
        first, new = fields["_sigma"] ** -2, np.flatnonzero(move.fresh)
        moved = move.scaled(c, 2, first) if c.ndim == 1 else move.scaled(move.scaled(c, 1, 0.0).T, 1, 0.0)
        if c.ndim == 2:
            moved[new, new] = first
        narrow = np.ones(self.space.size)
        most = np.maximum(first, move.scaled(variances(c), 0, first))
        narrow[:genes] = np.minimum(1.0, np.sqrt(most / variances(moved)))[:genes]
        moved *= narrow**2 if c.ndim == 1 else np.outer(narrow, narrow)
        path = rooted(c, 0.5, np.asarray(fields["_p_sigma"]))  # the package stores it divided by the root of C
        own = {
            **fields, "_mean": move.place(fields["_mean"] * before) / self.scales,
            "_C": moved if moved.ndim == self.cma._C.ndim else variances(moved),
            "_p_sigma": rooted(moved, -0.5, narrow * move.scaled(path, 1, 0.0)),
            "_pc": narrow * move.scaled(fields["_pc"], 1, 0.0),
            "_D": None, "_B": None,
        }  # fmt: skip
        return {
            **without_pending_generation(super().remap_state(state, move)),
            "cma": {name: own[name] for name in MOVING[type(self.cma)]},
        }


def variances(c: Vectors) -> Vectors:
    """[D] of a covariance, be it full [D, D] or diagonal [D]."""
    return c if c.ndim == 1 else c.diagonal().copy()


def rooted(c: Vectors, power: float, x: Vectors) -> Vectors:
    """A covariance to a power, times a vector [D]."""
    if c.ndim == 1:
        return np.asarray(c**power * x)
    values, vectors = np.linalg.eigh(c)
    return np.asarray(vectors @ (np.maximum(values, 1e-14 * values.max()) ** power * (vectors.T @ x)))
