"""Numbers that say how balanced and how varied a game of two sides is. Shapes: G games, H genes, n choices."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def evenness(points: ArrayLike) -> float:
    """Return ``1 - 2 |w - 1/2|`` of the mean w of the first side's points [G] (1 win, 1/2 draw, 0 defeat).

    1 is an even game, 0 one that a side always wins. Of an even game of G independent games without draws the expected
    value is about 1 - sqrt(2 / (pi G)), not 1, since w scatters: 0.96 with 400 games.
    """
    return 1.0 - 2.0 * abs(float(np.mean(np.asarray(points, np.float64))) - 0.5)


def variety(counts: ArrayLike) -> float:
    """Return the entropy of choices that were made so often [n], divided by that of a uniform use: from 0 to 1.

    0 with a single choice, or none made. C. E. Shannon, "A mathematical theory of communication", 1948, section 6.
    """
    x = np.asarray(counts, np.float64)
    if len(x) < 2 or not x.sum():
        return 0.0
    p = x[x > 0] / x.sum()
    return abs(float(-(p * np.log(p)).sum())) / math.log(len(x))


def change(differences: ArrayLike) -> float:
    """Return the root mean square of what genes differ from their designer's values [H], in units of their ranges."""
    x = np.asarray(differences, np.float64)
    return float(np.sqrt(np.mean(x * x))) if len(x) else 0.0
