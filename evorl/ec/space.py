"""What evolves: genes within bounds, and the weights of a policy.

Evolvers see a gene as a *coordinate*, a real number between a lower and an upper bound. The gene's *value*, which goes
into the config, is a real number (linear or logarithmic), an integer or one of several choices. Letters in shapes: N
individuals, G genes, D weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Coordinates = NDArray[np.float64]
Value = float | int | str | bool


@dataclass(frozen=True)
class Gene:
    """One number that evolves, named by the config key that it sets."""

    name: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    integer: bool = False
    choices: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        if self.choices:
            return
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"the gene {self.name} needs low <= high, both finite; got {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"the gene {self.name} is logarithmic and needs low > 0; got {self.low}")
        if self.integer and math.ceil(self.low) > math.floor(self.high):
            raise ValueError(f"the gene {self.name} has no whole number between {self.low} and {self.high}")

    @property
    def _ends(self) -> tuple[float, float]:
        """The least and the largest value of a range."""
        return (math.ceil(self.low), math.floor(self.high)) if self.integer else (self.low, self.high)

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the coordinate. An integer k has the whole interval between k - 1/2 and k + 1/2, the ends as well.

        So all integers are equally likely; with ``log`` k has the probability
        log((k + 1/2) / (k - 1/2)) / log((high + 1/2) / (low - 1/2)), about proportional to 1/k.
        """
        if self.choices:
            return -0.5, len(self.choices) - 0.5
        low, high = self._ends
        if self.integer:
            low, high = low - 0.5, high + 0.5
        return (math.log(low), math.log(high)) if self.log else (low, high)

    def value(self, coordinate: float) -> Value:
        """The value of a coordinate, always within the gene's bounds."""
        if self.choices:
            return self.choices[min(max(round(coordinate), 0), len(self.choices) - 1)]
        low, high = self._ends
        x = min(max(math.exp(coordinate) if self.log else float(coordinate), low), high)
        return round(x) if self.integer else x

    def coordinate(self, value: Value) -> float:
        """A coordinate of a value, or of the nearest value within bounds. Raises ValueError for an unknown choice."""
        if self.choices:
            return float(self.choices.index(value))
        low, high = self._ends
        x = min(max(float(value), low), high)
        return math.log(x) if self.log else x

    def has(self, value: Value) -> bool:
        """Whether a value lies within the range, or among the choices."""
        if self.choices or not self.knows(value):
            return value in self.choices
        low, high = self._ends
        return low <= float(value) <= high

    def knows(self, value: Value) -> bool:
        """Whether a value of another gene of this name can be used here: one of the choices, or any number."""
        if self.choices:
            return value in self.choices
        return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Space:
    """The genes and the number of weights of every individual; either may be empty."""

    genes: tuple[Gene, ...] = ()
    weights: int = 0
    fresh: Callable[[int], NDArray[np.float32]] | None = None
    """The initial weights [D] of the individual with a number; zeros where it is None."""
    parts: tuple[int, ...] = ()
    """Sizes of the layers within the weights, in order, for operators that cross whole layers; () is one part."""
    initial_values: Callable[[int], Mapping[str, Value]] | None = None
    """The initial values of genes, by name, of the individual with a number; other genes are drawn."""
    taken_over: Callable[[int], bool] | None = None
    """Whether the individual with a number begins as one of another run; nobody does where it is None."""

    @classmethod
    def box(cls, low: Sequence[float], high: Sequence[float]) -> Space:
        """Real genes x0, x1, ... between two vectors."""
        return cls(tuple(Gene(f"x{i}", float(a), float(b)) for i, (a, b) in enumerate(zip(low, high, strict=True))))

    @cached_property
    def low(self) -> Coordinates:
        """Lower bounds of the coordinates [G]."""
        return np.array([gene.bounds[0] for gene in self.genes])

    @cached_property
    def high(self) -> Coordinates:
        """Upper bounds of the coordinates [G]."""
        return np.array([gene.bounds[1] for gene in self.genes])

    def sample(self, generator: np.random.Generator, n: int) -> Coordinates:
        """[N, G] uniform within the bounds."""
        return generator.uniform(self.low, self.high, (n, len(self.genes)))

    def begin(self, generator: np.random.Generator, number: int, n: int = 1) -> Coordinates:
        """The initial genes [N, G] of n individuals, numbered from ``number``."""
        x = self.sample(generator, n)
        return (
            x
            if self.initial_values is None
            else np.array([self.coordinates(self.initial_values(number + k), x[k]) for k in range(n)])
        )

    def clip(self, x: ArrayLike) -> Coordinates:
        """Coordinates [..., G] brought within the bounds."""
        return np.clip(x, self.low, self.high)

    def weights_of(self, number: int) -> NDArray[np.float32] | None:
        """The initial weights [D] of the individual with a number; None where only genes evolve."""
        if not self.weights:
            return None
        return np.zeros(self.weights, np.float32) if self.fresh is None else self.fresh(number)

    def takes_over(self, number: int) -> bool:
        """Whether the individual with a number begins as one of another run."""
        return self.taken_over is not None and self.taken_over(number)

    # Evolvers of plain vectors see an individual as one [G + D]: genes in units of their range, then weights.

    @property
    def size(self) -> int:
        """G + D"""
        return len(self.genes) + self.weights

    def vector(self, genes: Coordinates, weights: NDArray[np.float32] | None) -> Coordinates:
        """An individual as one vector [G + D], its genes within [0, 1]."""
        unit = (genes - self.low) / self.range
        return unit if weights is None else np.concatenate([unit, weights.astype(np.float64)])

    def individual(self, vector: Coordinates) -> tuple[Coordinates, NDArray[np.float32] | None]:
        """The genes, clipped to their bounds, and the weights of a vector [G + D]."""
        weights = vector[len(self.genes) :].astype(np.float32) if self.weights else None
        return self.coordinates_of(vector), weights

    def coordinates_of(self, vector: Coordinates) -> Coordinates:
        """The genes [G] of a vector [G + D], clipped to their bounds."""
        if not self.genes:  # called for hundreds of individuals in every generation
            return np.empty(0)
        return self.clip(self.low + vector[: len(self.genes)] * self.range)

    def spread(self, x: Coordinates) -> float:
        """The mean deviation of genes [N, G], each in units of its range."""
        return float((x.std(0) / self.range).mean())

    @cached_property
    def range(self) -> Coordinates:
        """Widths of the genes' bounds [G]; 1 where there is no choice."""
        span = self.high - self.low
        return np.where(span > 0, span, 1.0)

    def values(self, x: Coordinates) -> dict[str, Value]:
        """The values of an individual's coordinates [G], by name."""
        return {gene.name: gene.value(float(at)) for gene, at in zip(self.genes, x, strict=True)}

    def coordinates(self, values: Mapping[str, Value], default: Coordinates) -> Coordinates:
        """Coordinates [G] of values by name; a gene without a usable value keeps its coordinate in ``default``.

        It brings individuals of another space (other genes, other bounds) into this one.
        """
        x = default.copy()
        for i, gene in enumerate(self.genes):
            if gene.name in values and gene.knows(values[gene.name]):
                x[i] = gene.coordinate(values[gene.name])
        return x
