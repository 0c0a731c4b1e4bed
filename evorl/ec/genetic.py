"""What genetic algorithms share: children of selected parents, by crossover and mutation of genes and weights."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Evaluation, IndependentEvolution, Individual, Metrics, failed, genomes, objectives
from evorl.ec.generational import Generational
from evorl.ec.operators import beats, gaussian, layerwise, polynomial, sbx, tournament
from evorl.util.types import Count, Fraction, NonNegative

Key = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Genetic(IndependentEvolution):
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
        """Children in a generation."""
        return self.offspring or self.population

    @property
    def noise(self) -> float:
        """Standard deviation of the mutation of weights."""
        return (0.0 if self.trains else 0.02) if self.weight_std is None else self.weight_std


class Breeder(Generational):
    """Proposes random individuals until a population's number of evaluations has arrived, then children.

    Individuals that failed (NaN) never enter the population, which is smaller while there are not enough others.
    """

    hyper: Genetic

    @abstractmethod
    def keys(self) -> tuple[Key, ...]:
        """Keys that compare two individuals: the larger wins, in the first key [N] that differs."""

    @abstractmethod
    def survivors(self, old: list[Evaluation], new: list[Evaluation]) -> list[Evaluation]:
        """The next population, selected from the old one and its children."""

    @property
    def batch(self) -> int:
        """Evaluations to learn from: one generation's children; at the start, the rest of the first population."""
        return self.hyper.children if self.population else min(self.hyper.children, self.hyper.population)

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        if self.told < self.hyper.population or not self.population:
            return self.fresh(generator, self.brood)
        children = 1 if self.hyper.asynchronous else self.hyper.children
        keys, pairs = self.keys(), -(-children // 2)
        a, b = self.select(generator, 2 * pairs, keys).reshape(2, pairs)
        return self.breed(generator, np.where(beats(a, b, *keys), (a, b), (b, a)), children)

    def select(self, generator: np.random.Generator, n: int, keys: tuple[Key, ...]) -> Indices:
        """Indices [n] of parents within the population."""
        return tournament(generator, n, *keys)

    def fresh(self, generator: np.random.Generator, n: int) -> list[Individual]:
        """n individuals drawn from the whole space."""
        genes = self.space.begin(generator, self.next_id, n)
        return [self.new(genes=x, weights=self.space.weights_of(self.next_id), role="initial") for x in genes]

    def breed(self, generator: np.random.Generator, pairs: Indices, count: int) -> list[Individual]:
        """Two children of each pair of parents [2, P], the fitter parent first; copies where the pair is not crossed.

        Where ``count`` is odd the last pair has one child, drawn from its two: the first resembles the fitter parent.
        """
        hyper, low, high = self.hyper, self.space.low, self.space.high
        crossed = np.asarray(generator.random(pairs.shape[1]) < hyper.crossover)
        x, y = genomes(self.population)[pairs]
        genes = np.stack(sbx(generator, x, y, low, high, crossed=crossed, eta=hyper.crossover_eta), 1)
        rate = 1 / max(len(low), 1) if hyper.mutation is None else hyper.mutation
        genes = polynomial(generator, genes.reshape(2 * len(x), len(low)), low, high, rate=rate, eta=hyper.mutation_eta)
        a, b = pairs
        first = np.stack([a, np.where(crossed, a, b)], 1).ravel()
        second = np.stack([np.where(crossed, b, a), b], 1).ravel()
        weights = self._weights(generator, first, second)
        born, places = [], [*range(len(first))]
        if count < len(places):
            del places[-1 - int(generator.integers(2))]
        for n in places:
            fitter, other = (self.population[parents[n]].individual for parents in (first, second))
            names = (fitter.id,) if fitter is other else (fitter.id, other.id)
            own = None if weights is None else weights[n]
            born.append(self.new(genes=genes[n], weights=own, parents=names, role="child", memory=fitter.memory))
        return born

    def _weights(self, generator: np.random.Generator, a: Indices, b: Indices) -> NDArray[np.float32] | None:
        """The weights [N, D] of one child of each pair of parents [N], the fitter parent first."""
        if not self.space.weights:
            return None
        child = self._weights_of(a)
        if self.hyper.weights == "layers":
            child = layerwise(generator, child, self._weights_of(b), self.space.parts)
        return gaussian(generator, child, self.hyper.noise) if self.hyper.noise else child

    def _weights_of(self, which: Indices) -> NDArray[np.float32]:
        """The weights [N, D] of these members of the population."""
        return np.array([self.population[i].individual.weights for i in which], np.float32)

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        lost = failed(objectives(evaluations)).tolist()
        sound = [evaluation for evaluation, bad in zip(evaluations, lost, strict=True) if not bad]
        before = {evaluation.individual.id for evaluation in self.population}
        if sound:
            self.population = self.survivors(list(self.population), sound)
        survived = sum(evaluation.individual.id in before for evaluation in self.population)
        return {"population/survived": survived / self.hyper.population}
