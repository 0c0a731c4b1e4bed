"""MAP-Elites (Mouret & Clune 2015, arXiv 1504.04909): the best individual of every kind of behaviour.

A grid divides the space of descriptors, such as how lazy a player is. Each cell keeps its fittest individual. Parents
are drawn from the occupied cells, and each child competes for the cell of its own descriptors:

    gaussian:  x' = x_i + sigma N(0, I)
    iso_line:  x' = x_i + sigma N(0, I) + line N(0, 1) (x_j - x_i)           (Vassiliades & Mouret 2018, equation 1)

The archive is that of pyribs (Tjanaka et al. 2023, arXiv 2303.00191), installed by the extra ``qd``. An individual that
failed, or has no descriptor, enters no cell. Descriptors beyond the bounds of the grid belong to the cell at its edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from evorl.ec.core import Evaluation, IndependentEvolution, Individual, Metrics, unknown_result
from evorl.ec.generational import Generational
from evorl.ec.space import Coordinates, Space
from evorl.ec.vectors import Vectors, fitness, initial_vector, per_coordinate, vectors
from evorl.util.command import install
from evorl.util.errors import BadRequest
from evorl.util.types import Count, NonNegative, StateDict

if TYPE_CHECKING:
    from ribs.archives import GridArchive


@dataclass(frozen=True, kw_only=True)
class MapElites(IndependentEvolution):
    """The operator's constants are those of Vassiliades & Mouret 2018."""

    descriptors: dict[str, tuple[float, float, Count]] = field(default_factory=dict)
    """{name: [low, high, cells]} of results of the world, whose means describe behaviour, or of genes."""
    emitter: Literal["iso_line", "gaussian"] = "iso_line"
    """How children differ from their parents."""
    sigma: NonNegative = 0.01
    """Standard deviation of the step of weights, and of genes in units of their range."""
    line: NonNegative = 0.2
    """Standard deviation of the step along the line between two parents, in units of their distance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, (low, high, _) in self.descriptors.items():
            if not low < high:
                raise BadRequest(f"needs low < high; got {low} and {high}", f"descriptors.{name}")

    def wanted(self, space: Space) -> dict[str, str]:
        numbers = {gene.name for gene in space.genes if all(isinstance(choice, int | float) for choice in gene.choices)}
        return super().wanted(space) | {name: f"descriptors.{name}" for name in self.descriptors if name not in numbers}

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


def archive(hyper: MapElites) -> GridArchive:
    """An empty grid whose solutions are ids. Raises `BadRequest` without pyribs or without descriptors."""
    if not hyper.descriptors:
        raise BadRequest("map_elites needs at least one, as {name: [low, high, cells]}", "descriptors")
    try:
        from ribs.archives import GridArchive
    except ImportError:
        raise BadRequest(f"map_elites needs pyribs: {install('qd')}") from None
    low, high, cells = zip(*hyper.descriptors.values(), strict=True)
    return GridArchive(solution_dim=1, dims=cells, ranges=list(zip(low, high, strict=True)))


def offspring(hyper: MapElites, scale: Coordinates, a: Vectors, b: Vectors, generator: np.random.Generator) -> Vectors:
    """Children [N, D] of parents a, towards or away from b [N, D]."""
    children = a + scale * generator.standard_normal(a.shape)
    if hyper.emitter == "gaussian":
        return children
    return children + hyper.line * generator.standard_normal((len(a), 1)) * (b - a)


class Strategy(Generational):
    """`population` are the elites, in the order of their cells."""

    hyper: MapElites

    def __init__(self, hyper: MapElites, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.archive = archive(hyper)

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        n = self.brood
        if not self.population:
            pairs = [self.space.individual(initial_vector(self.space, generator, self.next_id + k)) for k in range(n)]
            return [self.new(genes=genes, weights=weights, role="initial") for genes, weights in pairs]
        a, b = generator.integers(len(self.population), size=(2, n)).tolist()
        x, y = (vectors(self.space, [self.population[i] for i in of]) for of in (a, b))
        children = offspring(
            self.hyper, per_coordinate(self.space, self.hyper.sigma, self.hyper.sigma), x, y, generator
        )
        return [self._child(x, (i, j)) for x, i, j in zip(children, a, b, strict=True)]

    def _child(self, x: Coordinates, places: tuple[int, int]) -> Individual:
        """A child of the first of two elites, moved along the line to the second."""
        genes, weights = self.space.individual(x)
        parents = [self.population[place].individual for place in places]
        counted = parents[:1] if self.hyper.emitter == "gaussian" else parents
        ids = tuple(evaluation.id for evaluation in counted)
        return self.new(genes=genes, weights=weights, parents=ids, role="child", memory=parents[0].memory)

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        described = np.array([self._descriptor(evaluation) for evaluation in evaluations])
        sound = np.isfinite(fitness(evaluations)) & np.isfinite(described).all(1)
        self._add([evaluation for evaluation, fine in zip(evaluations, sound, strict=True) if fine], described[sound])
        low, high = self.archive.lower_bounds, self.archive.upper_bounds
        beyond = ((described < low) | (described > high)).any(1)  # pyribs puts them into the cells at the edge
        return {"population/coverage": float(self.archive.stats.coverage), "population/beyond": float(beyond.mean())}

    def _add(self, evaluations: Sequence[Evaluation], described: Vectors) -> None:
        if not evaluations:
            return
        known = {evaluation.individual.id: evaluation for evaluation in (*self.population, *evaluations)}
        ids = np.array([[evaluation.individual.id] for evaluation in evaluations], np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # pyribs sums and subtracts objectives, however large
            self.archive.add(ids, fitness(evaluations), described)
        cells = self.archive.data(["solution", "index"])
        order = np.argsort(cells["index"])
        self.population = [known[int(number)] for number in cells["solution"][order, 0]]

    def _descriptor(self, evaluation: Evaluation) -> list[float]:
        values = self.space.values(evaluation.individual.genes)
        return [self._described(name, evaluation, values.get(name)) for name in self.hyper.descriptors]

    def _described(self, name: str, evaluation: Evaluation, gene: object) -> float:
        if name in evaluation.result:
            return float(np.mean(evaluation.result[name]))
        if isinstance(gene, int | float):
            return float(gene)
        if np.isnan(evaluation.objectives).any():  # failed individuals have no descriptors
            return np.nan
        raise unknown_result(name, evaluation.result, f"descriptors.{name}")

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        elites, self.population = self.population, []
        self.archive.clear()
        self._add(elites, np.array([self._descriptor(elite) for elite in elites]))
