"""Test problems of optimisation: a world without a policy; individuals are points, results are function values.

Each problem is a pure function of points [N, D] to values [N, M] to be *minimised*, as published; `Problem` negates
them, since evolution maximises. Sources: K. A. De Jong (1975) sphere; H. H. Rosenbrock (1960); L. A. Rastrigin
(1974); E. Zitzler, K. Deb, L. Thiele, "Comparison of multiobjective evolutionary algorithms: empirical results"
(2000) ZDT; K. Deb, L. Thiele, M. Laumanns, E. Zitzler, "Scalable test problems for evolutionary multiobjective
optimization" (2005) DTLZ. Letters in shapes: N points, D dimensions, M objectives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from evorl.mdp.core import World
from evorl.util.errors import BadRequest, nearest_or_all
from evorl.util.seed import Episodes
from evorl.util.types import Count

Points = NDArray[np.float64]


def _total(x: Points) -> Points:
    """Return the sums of the rows [N, 1]."""
    return np.asarray(x.sum(axis=1, keepdims=True))


# ------------------------------------------------------------------ one objective


def sphere(x: Points, m: int = 1) -> Points:
    """Minimum 0 at the origin."""
    return _total(x**2)


def rosenbrock(x: Points, m: int = 1) -> Points:
    """A curved valley; minimum 0 at (1, ..., 1)."""
    x_i, x_next = x[:, :-1], x[:, 1:]
    return _total(100 * (x_next - x_i**2) ** 2 + (1 - x_i) ** 2)


def rastrigin(x: Points, m: int = 1) -> Points:
    """A sphere with a lattice of local minima; minimum 0 at the origin."""
    return 10.0 * len(x.T) + _total(x**2 - 10 * np.cos(2 * np.pi * x))


# ------------------------------------------------------------------ ZDT: two objectives, f2 = g h(f1, g)


def zdt1(x: Points, m: int = 2) -> Points:
    """A convex front, f2 = 1 - √f1."""
    f1, g = x[:, 0], 1 + 9 * np.mean(x[:, 1:], axis=1)
    return np.column_stack([f1, g * (1 - np.sqrt(f1 / g))])


def zdt2(x: Points, m: int = 2) -> Points:
    """A concave front, f2 = 1 - f1²."""
    f1, g = x[:, 0], 1 + 9 * np.mean(x[:, 1:], axis=1)
    return np.column_stack([f1, g * (1 - (f1 / g) ** 2)])


def zdt3(x: Points, m: int = 2) -> Points:
    """A front in five pieces."""
    f1, g = x[:, 0], 1 + 9 * np.mean(x[:, 1:], axis=1)
    return np.column_stack([f1, g * (1 - np.sqrt(f1 / g) - f1 / g * np.sin(10 * np.pi * f1))])


def zdt4(x: Points, m: int = 2) -> Points:
    """ZDT1's front behind 21^(D-1) local ones."""
    f1, rest = x[:, 0], x[:, 1:]
    g = 1 + 10 * rest.shape[1] + np.sum(rest**2 - 10 * np.cos(4 * np.pi * rest), axis=1)
    return np.column_stack([f1, g * (1 - np.sqrt(f1 / g))])


def zdt5(x: Points, m: int = 2) -> Points:
    """A deceptive problem of bits: one group of 30, the others of 5; a coordinate >= 0.5 is a one."""
    ones = x >= 0.5
    u = ones[:, 30:].reshape(len(x), -1, 5).sum(axis=2)
    f1, g = 1.0 + ones[:, :30].sum(axis=1), np.where(u < 5, 2 + u, 1).sum(axis=1)
    return np.column_stack([f1, g / f1])


def zdt6(x: Points, m: int = 2) -> Points:
    """A concave front. Random points are sparse near the front, and unevenly distributed along it."""
    f1 = 1 - np.exp(-4 * x[:, 0]) * np.sin(6 * np.pi * x[:, 0]) ** 6
    g = 1 + 9 * np.mean(x[:, 1:], axis=1) ** 0.25
    return np.column_stack([f1, g * (1 - (f1 / g) ** 2)])


# ------------------------------------------------------------------ DTLZ: M objectives, D - M + 1 distance variables


def dtlz1(x: Points, m: int) -> Points:
    """A plane, Σ f = 1/2, behind 11^k - 1 local fronts."""
    place, g = x[:, : m - 1], _rugged(x[:, m - 1 :])
    return 0.5 * (1 + g) * _products(place, 1 - place)


def dtlz2(x: Points, m: int) -> Points:
    """A sphere, Σ f² = 1."""
    return (1 + _bowl(x[:, m - 1 :])) * _sphere(x[:, : m - 1])


def dtlz3(x: Points, m: int) -> Points:
    """DTLZ2's sphere behind 3^k - 1 local fronts."""
    return (1 + _rugged(x[:, m - 1 :])) * _sphere(x[:, : m - 1])


def dtlz4(x: Points, m: int) -> Points:
    """DTLZ2's sphere, with nearly all points near its edges."""
    return (1 + _bowl(x[:, m - 1 :])) * _sphere(x[:, : m - 1] ** 100)


def dtlz5(x: Points, m: int) -> Points:
    """A curve on DTLZ2's sphere."""
    g = _bowl(x[:, m - 1 :])
    return (1 + g) * _sphere(_bent(x[:, : m - 1], g))


def dtlz6(x: Points, m: int) -> Points:
    """DTLZ5's curve, harder to approach."""
    g = _total(x[:, m - 1 :] ** 0.1)
    return (1 + g) * _sphere(_bent(x[:, : m - 1], g))


def dtlz7(x: Points, m: int) -> Points:
    """A front in 2^(M-1) pieces."""
    f, g = x[:, : m - 1], 1 + 9 * np.mean(x[:, m - 1 :], axis=1, keepdims=True)
    h = m - _total(f / (1 + g) * (1 + np.sin(3 * np.pi * f)))
    return np.column_stack([f, (1 + g) * h])


def _rugged(x: Points) -> Points:
    """Return g [N, 1] of DTLZ1 and DTLZ3."""
    return 100 * (len(x.T) + _total((x - 0.5) ** 2 - np.cos(20 * np.pi * (x - 0.5))))


def _bowl(x: Points) -> Points:
    """Return g [N, 1] of DTLZ2, DTLZ4 and DTLZ5."""
    return _total((x - 0.5) ** 2)


def _products(a: Points, b: Points) -> Points:
    """Return [N, M] from [N, M - 1]: a1 ... a(M-1), a1 ... a(M-2) b(M-1), ..., a1 b2, b1."""
    ones = np.ones((len(a), 1))
    products: Points = np.multiply.accumulate(np.hstack([ones, a]), axis=1)
    return products[:, ::-1] * np.hstack([ones, b[:, ::-1]])


def _sphere(place: Points) -> Points:
    """Return points [N, M] of the unit sphere at the angles place * π/2."""
    angle = place * np.pi / 2
    return _products(np.cos(angle), np.sin(angle))


def _bent(place: Points, g: Points) -> Points:
    """Return θ of DTLZ5 and DTLZ6 in units of π/2; all but the first approach 1/2 as g goes to 0."""
    return np.column_stack([place[:, 0], (1 + 2 * g * place[:, 1:]) / (2 * (1 + g))])


# ------------------------------------------------------------------ the world

_UNIT = (0.0, 1.0)
PROBLEMS: dict[str, tuple[Callable[[Points, int], Points], tuple[float, float]]] = {
    "sphere": (sphere, (-5.12, 5.12)), "rosenbrock": (rosenbrock, (-2.048, 2.048)),
    "rastrigin": (rastrigin, (-5.12, 5.12)),
    "zdt1": (zdt1, _UNIT), "zdt2": (zdt2, _UNIT), "zdt3": (zdt3, _UNIT), "zdt4": (zdt4, (-5.0, 5.0)),
    "zdt5": (zdt5, _UNIT), "zdt6": (zdt6, _UNIT),
    "dtlz1": (dtlz1, _UNIT), "dtlz2": (dtlz2, _UNIT), "dtlz3": (dtlz3, _UNIT), "dtlz4": (dtlz4, _UNIT),
    "dtlz5": (dtlz5, _UNIT), "dtlz6": (dtlz6, _UNIT), "dtlz7": (dtlz7, _UNIT),
}  # fmt: skip
"""Each problem's function and the bounds of its coordinates (ZDT4's first is within [0, 1])."""


@dataclass(frozen=True, kw_only=True)
class Problem(World):
    """A test problem; an evaluation costs one step. It has no policy and no arena, and works with evolution only."""

    budget: Count = 25_000
    id: str = "sphere"
    """One of `PROBLEMS`."""
    dimensions: Count = 30
    """Length D of a point; for zdt5 the number of bits: 30 plus a multiple of 5."""
    objectives: Count | None = None
    """Number of objectives, for the DTLZ problems only; null: 3."""

    def ready(self) -> None:
        if self.features or self.frame_skip != 1:
            raise BadRequest("a problem has no episodes", "features" if self.features else "frame_skip")
        if self.id not in PROBLEMS:
            raise BadRequest(f"there is no problem {self.id}{nearest_or_all(self.id, PROBLEMS)}", "id")
        if self.objectives is not None and not self.id.startswith("dtlz"):
            raise BadRequest(f"{self.id} has {self.count}; only the DTLZ problems take another number", "objectives")
        if self.objectives == 1:
            raise BadRequest("the DTLZ problems have two or more", "objectives")
        if self.id == "zdt5" and (self.dimensions < 35 or self.dimensions % 5):
            raise BadRequest("zdt5 needs 30 bits plus a multiple of 5: 35, 40, ...; 80 is usual", "dimensions")
        least = 1 if self.id in ("sphere", "rastrigin") else max(self.count, 2)
        if self.dimensions < least:
            raise BadRequest(f"{self.id} needs at least {least}", "dimensions")

    @property
    def draws(self) -> bool:
        return False

    @property
    def count(self) -> int:
        """Objectives, M."""
        if self.id.startswith("dtlz"):
            return self.objectives or 3
        return 2 if self.id.startswith("zdt") else 1

    @property
    def names(self) -> tuple[str, ...]:
        """Result names of the objectives: fitness if there is one, else f1, f2, ..."""
        return ("fitness",) if self.count == 1 else tuple(f"f{i + 1}" for i in range(self.count))

    @property
    def bounds(self) -> tuple[Points, Points]:
        """The lowest and the highest coordinates, [D] each."""
        low, high = (np.full(self.dimensions, bound) for bound in PROBLEMS[self.id][1])
        if self.id == "zdt4":
            low[0], high[0] = _UNIT
        return low, high

    def evaluate(self, x: Points) -> Points:
        """Return values [N, M] of points [N, D], to be maximised."""
        return -PROBLEMS[self.id][0](x, self.count)

    def arena(self, slots: int, episodes: Episodes) -> NoReturn:
        raise BadRequest("a problem has no policy to learn: it needs an evolution, such as ec=nsga2")
