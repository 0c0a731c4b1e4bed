"""What genetic algorithms share: children of selected parents, by crossover and mutation of genes and weights."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Evaluation, Evolution, Generational, Individual, Metrics, failed, genomes, objectives
from evorl.ec.operators import beats, gaussian, layerwise, polynomial, sbx, tournament
from evorl.ec.space import Space
from evorl.util.types import Count, Fraction, NonNegative

Key = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Genetic(Evolution):
    """The hyper-parameters of breeding; SBX, polynomial mutation and their defaults: Deb et al. 2002, section V."""

    offspring: Count | None = None
    """Children in a generation; null is the population, 1 is steady state (one child at a time)."""
    crossover: Fraction = 0.9
    """Probability that a pair of parents is crossed."""
    crossover_eta: NonNegative = 20.0
    """Distribution index of SBX: the larger, the nearer are children to their parents."""
    mutation: Fraction | None = None
    """Probability that a gene mutates; null is one over the number of genes."""
    mutation_eta: NonNegative = 20.0
    """Distribution index of polynomial mutation: the larger, the smaller its steps."""
    weights: Literal["fitter", "layers"] = "fitter"
    """The weights of a child: the fitter parent's (Lamarckian's "best"), or each layer from either of them."""
    weight_std: NonNegative | None = None
    """Standard deviation of the mutation of weights; null is 0.02 where they only play, 0 where a learner trains."""

    @property
    def children(self) -> int:
        """In a generation."""
        return self.offspring or self.population

    @property
    def noise(self) -> float:
        """Standard deviation of the mutation of weights."""
        return (0.0 if self.lifetime == "train" else 0.02) if self.weight_std is None else self.weight_std


class Breeder(Generational):
    """Proposes at random until a population's number of evaluations has come in, and children from then on.

    Individuals that failed (NaN) never enter the population, which is smaller while there are not enough others.
    """

    hyper: Genetic

    def __init__(self, hyper: Genetic, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)

    @abstractmethod
    def keys(self) -> tuple[Key, ...]:
        """What decides between two of the population: the larger wins, the first [N] that differs."""

    @abstractmethod
    def survivors(self, old: list[Evaluation], new: list[Evaluation]) -> list[Evaluation]:
        """Who of the population before and its children makes the next one."""

    @property
    def batch(self) -> int:
        return self.hyper.children

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        if self.told < self.hyper.population or not self.population:
            return self.fresh(generator, self.hyper.population)
        keys, pairs = self.keys(), -(-self.hyper.children // 2)
        a, b = self.select(generator, 2 * pairs, keys).reshape(2, pairs)
        return self.breed(generator, np.where(beats(a, b, *keys), (a, b), (b, a)))[: self.hyper.children]

    def select(self, generator: np.random.Generator, n: int, keys: tuple[Key, ...]) -> Indices:
        """Indices [n] of parents within the population."""
        return tournament(generator, n, *keys)

    def fresh(self, generator: np.random.Generator, n: int) -> list[Individual]:
        """n individuals drawn from the whole space."""
        genes = self.space.sample(generator, n)
        return [self.new(genes=x, weights=self.space.weights_of(self.next_id), role="initial") for x in genes]

    def breed(self, generator: np.random.Generator, pairs: Indices) -> list[Individual]:
        """Two children of each pair of parents [2, P], the fitter named first."""
        hyper, low, high = self.hyper, self.space.low, self.space.high
        x, y = genomes(self.population)[pairs]
        genes = np.stack(sbx(generator, x, y, low, high, rate=hyper.crossover, eta=hyper.crossover_eta), 1)
        rate = 1 / max(len(low), 1) if hyper.mutation is None else hyper.mutation
        genes = polynomial(generator, genes.reshape(2 * len(x), len(low)), low, high, rate=rate, eta=hyper.mutation_eta)
        weights = self._weights(generator, np.repeat(pairs, 2, axis=1))
        born = []
        for i, (first, second) in enumerate(pairs.T.tolist()):
            fitter, other = self.population[first].individual, self.population[second].individual
            parents = (fitter.id,) if first == second else (fitter.id, other.id)
            memory = fitter.memory if hyper.inherit_optimizer else None
            for n in (2 * i, 2 * i + 1):
                own = None if weights is None else weights[n]
                born.append(self.new(genes=genes[n], weights=own, parents=parents, role="child", memory=memory))
        return born

    def _weights(self, generator: np.random.Generator, pairs: Indices) -> NDArray[np.float32] | None:
        """The weights [N, D] of a child of each pair of parents [2, N]."""
        if not self.space.weights:
            return None
        fitter, other = np.array([one.individual.weights for one in self.population], np.float32)[pairs]
        if self.hyper.weights == "layers":
            fitter = layerwise(generator, fitter, other, self.space.parts)
        return gaussian(generator, fitter, self.hyper.noise) if self.hyper.noise else fitter

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        lost = failed(objectives(evaluations)).tolist()
        sound = [one for one, bad in zip(evaluations, lost, strict=True) if not bad]
        before = {one.individual.id for one in self.population}
        if sound:
            self.population = self.survivors(list(self.population), sound)
        survived = sum(one.individual.id in before for one in self.population)
        return {"population/survived": survived / self.hyper.population}
