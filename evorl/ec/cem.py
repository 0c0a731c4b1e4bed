"""The cross-entropy method with a diagonal Gaussian, in the form of CEM-RL (Pourchot & Sigaud 2019, arXiv 1810.01222).

The best individuals z_i, weighted by lambda_i, are the next distribution N(mu, diag(sigma^2)):

    mu'      = sum_i lambda_i z_i                                                       (equation 1)
    sigma^2' = sum_i lambda_i (z_i - mu)^2 + epsilon                                    (equation 2)

with the old mean in equation 2, and epsilon, the noise that keeps the search from ending too early, falling from one
value to another. ``weighting=equal around=new`` is the plain method with noise that decays (Szita & Lörincz 2006).

A failed individual is never in the elite. The elite is smaller where too few individuals succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evorl.ec.core import Evaluation, Evolution, IndependentEvolution, Individual, Metrics
from evorl.ec.generational import Generational, without_pending_generation
from evorl.ec.space import Coordinates, Space
from evorl.ec.space_change import SpaceChange
from evorl.ec.vectors import Vectors, fitness, initial_vector, memory_of_fittest, per_coordinate, vectors
from evorl.ops.ranks import log_weights
from evorl.util import seed as seeds
from evorl.util.saved import restore, saved
from evorl.util.types import Fraction, NonNegative, Positive, StateDict


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a generation is sampled, and how the next distribution is made of it."""

    elite: Fraction = 0.5
    """Share of a generation that the next distribution is made of, at least one."""
    weighting: Literal["log", "equal"] = "log"
    """The weights lambda_i of the elite: falling with the logarithm of the rank, or all the same."""
    around: Literal["old", "new"] = "old"
    """The mean that the spread is measured around: the old one reaches out in the direction of progress."""
    divide: bool = False
    """Divide the spread by the number of elites once more, as CEM-RL's code does."""
    antithetic: bool = False
    """Sample pairs mu +- sigma eps; the second half of a generation mirrors the first."""
    sigma: Positive = 0.1
    """Standard deviation of weights at the start."""
    noise: NonNegative = 1e-3
    """What is added to the variance at the start, epsilon."""
    noise_end: NonNegative = 1e-5
    """What that falls to."""
    noise_decay: Fraction = 0.95
    """What multiplies its distance to the end after every generation."""


@dataclass(frozen=True, kw_only=True)
class CEM(Sampling, IndependentEvolution):
    """Weighting, spread and noise as in CEM-RL's code, but for the first spread, there that of a learner's weights."""

    gene_sigma: Positive = 0.3
    """Standard deviation of genes at the start, in units of their range."""

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, self, per_coordinate(space, self.gene_sigma, self.sigma), space, seed)


def elite_weights(n: int, weighting: str) -> Coordinates:
    """lambda [n], best first, of sum 1."""
    return log_weights(n) if weighting == "log" else np.full(n, 1 / n)


def refit(
    z: Vectors, weights: Coordinates, old: Coordinates | None, noise: float, divide: bool = False
) -> tuple[Coordinates, Coordinates]:
    """Equations 1 and 2: mean and variance [D] of the elite [N, D], around ``old`` or, where it is None, their own.

    ``divide`` divides the spread by N."""
    share = weights[:, None]  # not a product of BLAS, whose last bits depend on its threads
    mean = (share * z).sum(0)
    spread = (share * (z - (mean if old is None else old)) ** 2).sum(0)
    return mean, (spread / len(z) if divide else spread) + noise


def normal(generator: np.random.Generator, number: int, size: int, antithetic: bool) -> Vectors:
    """Standard normal noise [number, size]; antithetic: the second half is minus the first."""
    if not antithetic:
        return generator.standard_normal((number, size))
    half = generator.standard_normal((-(-number // 2), size))
    return np.concatenate([half, -half])[:number]


def elite_of(evaluations: Sequence[Evaluation], share: float) -> list[Evaluation]:
    """The best share of some evaluations, rounded down, at least one; the best first, and none that failed."""
    f = fitness(evaluations)
    places = min(max(int(share * len(f) + 1e-9), 1), int(np.isfinite(f).sum()))
    return [evaluations[i] for i in np.argsort(-f, kind="stable")[:places]]


SAVED = ("mean", "variance", "noise")  # what a checkpoint holds as it is


class Strategy(Generational):
    """Holds mean and variance; its population is the last generation's elite, the best first."""

    def __init__(self, hyper: Evolution, sampling: Sampling, deviation: Coordinates, space: Space, seed: int) -> None:
        """``deviation``: standard deviations [G + D] at the start."""
        super().__init__(hyper, space, seed)
        self.sampling, self.deviation = sampling, deviation
        self.mean = initial_vector(space, seeds.generator(seed, "start"), 0)
        self.variance = deviation**2
        self.noise = sampling.noise

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        z = self._noise(generator)
        pairs = map(self.space.individual, self.mean + np.sqrt(self.variance) * z)
        memory = memory_of_fittest(self.population)
        return [self.new(genes=genes, weights=weights, role="sampled", memory=memory) for genes, weights in pairs]

    def _noise(self, generator: np.random.Generator) -> Vectors:
        """Standard normal noise [brood, G + D]. Of individuals proposed one by one, two in a row are a pair."""
        antithetic, size = self.sampling.antithetic, self.space.size
        if not (antithetic and self.hyper.asynchronous and self.brood == 1):
            return normal(generator, self.brood, size, antithetic)
        pair, second = divmod(self.next_id, 2)
        z = seeds.generator(self.seed, "pair", pair).standard_normal((1, size))
        return -z if second else z

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        h = self.sampling
        self.population = elite_of(evaluations, h.elite)
        self.noise = h.noise_end + h.noise_decay * (self.noise - h.noise_end)
        if self.population:
            old = self.mean if h.around == "old" else None
            weights = elite_weights(len(self.population), h.weighting)
            self.mean, self.variance = refit(vectors(self.space, self.population), weights, old, self.noise, h.divide)
        return {"population/sigma": float(np.sqrt(self.variance).mean())}

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), **saved(self, SAVED)}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        restore(self, SAVED, state)

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        """No gene becomes wider than at the start by a narrower range: nearly all samples would be at its bounds."""
        fresh = self.deviation**2
        scaled, as_it_was = (move.scaled(state["variance"], power, fresh) for power in (2, 0))
        variance = np.minimum(scaled, np.maximum(fresh, as_it_was))
        own = {"mean": move.place(state["mean"]), "variance": variance}
        return {**without_pending_generation(super().remap_state(state, move)), **own}
