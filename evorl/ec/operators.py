"""Selection, crossover and mutation of a whole generation at once.

Letters in shapes: N individuals, G genes, D weights. Genes are coordinates between ``low`` [G] and ``high`` [G], and
stay there. Distributions: K. Deb and R. B. Agrawal, "Simulated binary crossover for continuous search space" (1995);
K. Deb and M. Goyal, "A combined genetic adaptive search (GeneAS) for engineering design" (1996), both in the form
that keeps bounds, as in Deb's own NSGA-II.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Genes = NDArray[np.float64]
Weights = NDArray[np.float32]


def tournament(generator: np.random.Generator, n: int, *keys: NDArray[np.float64]) -> NDArray[np.intp]:
    """Indices [n] of the winners of n binary tournaments.

    The larger key [N] wins, in the first key that differs; between equals, the one drawn first. Each individual
    takes part equally often (give or take one), and where N is even none meets itself.
    """
    size = len(keys[0])
    rounds = np.tile(np.arange(size), (-(-2 * n // size), 1))
    first, second = generator.permuted(rounds, axis=1).ravel()[: 2 * n].reshape(n, 2).T
    return np.where(beats(first, second, *keys), first, second)


def beats(a: NDArray[np.intp], b: NDArray[np.intp], *keys: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the first of two individuals has the larger key, the first that differs, or equals the second."""
    wins = np.ones(len(a), np.bool_)
    for key in reversed(keys):
        wins = (key[a] > key[b]) | ((key[a] == key[b]) & wins)
    return wins


# ------------------------------------------------------------------ genes


def sbx(
    generator: np.random.Generator,
    a: Genes,
    b: Genes,
    low: Genes,
    high: Genes,
    *,
    crossed: NDArray[np.bool_],
    eta: float,
) -> tuple[Genes, Genes]:
    """Two children [N, G] of each pair of parents by simulated binary crossover.

    Of a pair that is ``crossed`` [N] each gene is with probability 1/2; which child takes the smaller value is drawn
    for each gene.
    """
    at = np.nonzero(crossed[:, None] & (generator.random(a.shape) < 0.5) & (a != b))
    x, y = np.minimum(a[at], b[at]), np.maximum(a[at], b[at])
    u = generator.random(len(x))
    below = (x + y - spread(u, (x - low[at[1]]) / (y - x), eta) * (y - x)) / 2
    above = (x + y + spread(u, (high[at[1]] - y) / (y - x), eta) * (y - x)) / 2
    below, above = _within(below, at[1], low, high), _within(above, at[1], low, high)
    swap = generator.random(len(x)) < 0.5
    first, second = a.copy(), b.copy()
    first[at], second[at] = np.where(swap, above, below), np.where(swap, below, above)
    return first, second


def spread(u: Genes, room: Genes, eta: float) -> Genes:
    """SBX's factor β_q of a uniform number: how far apart two children are, in units of their parents' distance.

    ``room`` is the distance from the nearer parent to the bound, in the same units, so that no child passes it.
    """
    alpha = 2 - (1 + 2 * room) ** -(eta + 1)
    share = u * alpha
    return np.where(share <= 1, share, 1 / (2 - share)) ** (1 / (eta + 1))


def polynomial(generator: np.random.Generator, x: Genes, low: Genes, high: Genes, *, rate: float, eta: float) -> Genes:
    """Polynomial mutation of each gene [N, G] with probability ``rate``."""
    at = np.nonzero((generator.random(x.shape) < rate) & (high > low))
    child = x.copy()
    span = (high - low)[at[1]]
    step = shift(generator.random(len(span)), (x[at] - low[at[1]]) / span, eta)
    child[at] = _within(x[at] + step * span, at[1], low, high)
    return child


def shift(u: Genes, place: Genes, eta: float) -> Genes:
    """Polynomial mutation's δ_q of a uniform number, for a gene at ``place`` within [0, 1]: in units of its range."""
    down = u <= 0.5
    share = np.where(down, 2 * u, 2 * (1 - u))
    room = np.where(down, 1 - place, place)
    size = 1 - (share + (1 - share) * room ** (eta + 1)) ** (1 / (eta + 1))
    return np.where(down, -size, size)


def _within(x: Genes, column: NDArray[np.intp], low: Genes, high: Genes) -> Genes:
    """Clip values that rounding carried past a bound."""
    return np.minimum(np.maximum(x, low[column]), high[column])


# ------------------------------------------------------------------ weights


def gaussian(generator: np.random.Generator, weights: Weights, std: float) -> Weights:
    """Weights [N, D] + ``std`` ε, ε ~ N(0, I)."""
    return weights + np.float32(std) * generator.standard_normal(weights.shape, np.float32)


def layerwise(generator: np.random.Generator, a: Weights, b: Weights, parts: Sequence[int]) -> Weights:
    """Children [N, D] that take each part whole from one parent; the sizes ``parts`` sum to D, none is one part."""
    sizes = parts or (a.shape[1],)
    return np.where(np.repeat(generator.random((len(a), len(sizes))) < 0.5, sizes, axis=1), a, b)
