"""What the numbers of a game do to its win rate: a straight line through the games of a search.

The log odds of a win of the first side are linear in the genes, which are measured from their designer's values in
units of their ranges: logit w = a + b x. By least squares on empirical logits log((k + 1/2) / (n - k + 1/2)) of k wins
in n games (J. Haldane, "The estimation and significance of the logarithm of a ratio of frequencies", 1956), as learners
differ by more than their games do. The smallest change that makes the line even is x = -a b / |b|^2, where the ranges
allow it. Letters in shapes: N games, H genes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.ops.student_t import t_quantile

Floats = NDArray[np.float64]


class Line(NamedTuple):
    """logit w = intercept + slope x"""

    intercept: float
    slope: Floats  # [H]
    half_width: Floats  # [H]: of the slopes' 95 % intervals, Student's t; NaN without degrees of freedom

    def rate(self, x: Floats) -> float:
        """The win rate of the first side at x [H]."""
        return float(1 / (1 + np.exp(-(self.intercept + self.slope @ x))))


def logit(rate: Floats, games: int) -> Floats:
    """The empirical log odds of win rates [N] of so many games."""
    return np.asarray(np.log((rate * games + 0.5) / ((1 - rate) * games + 0.5)))


def fitted(x: Floats, rate: Floats, games: int) -> Line:
    """The line through games x [N, H] with these win rates [N] of so many games each."""
    design = np.column_stack([np.ones(len(x)), x])
    inverse = np.linalg.pinv(design.T @ design)
    y = logit(rate, games)
    b = inverse @ design.T @ y
    freedom = len(x) - design.shape[1]
    error = np.full(len(b), np.nan)
    if freedom > 0:
        variance = float(np.square(y - design @ b).sum()) / freedom
        error = t_quantile(freedom) * np.sqrt(variance * np.diag(inverse))
    return Line(float(b[0]), b[1:], error[1:])


def through(line: Line, x: Floats, rate: float, games: int) -> Line:
    """The line moved so that it has this win rate at x [H]."""
    return line._replace(intercept=float(logit(np.array([rate]), games)[0] - line.slope @ x))


def smallest_even(line: Line, low: Floats, high: Floats) -> Floats:
    """The x [H] between low and high, nearest to 0, at which the line is even, or as even as the bounds allow.

    Genes that reach a bound stay there, and the others take the rest of the way.
    """
    x, free = np.zeros(len(line.slope)), np.ones(len(line.slope), bool)
    while free.any() and (line.slope[free] != 0).any():
        b = np.where(free, line.slope, 0.0)
        rest = line.intercept + line.slope @ np.where(free, 0.0, x)
        x = np.where(free, -rest * b / (b @ b), x)
        beyond = free & ((x < low) | (x > high))
        x = np.clip(x, low, high)
        if not beyond.any():
            break
        free &= ~beyond
    return x
