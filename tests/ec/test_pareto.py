"""Ranks, crowding and hypervolume against their definitions, by brute force."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evorl.ops import pareto


def points(values: st.SearchStrategy[float], least: int = 1, most: int = 4) -> Any:
    shapes = st.tuples(st.integers(1, 24), st.integers(least, most))
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=values))


SMALL = st.integers(-3, 3).map(float)  # many ties and duplicates
ANY = st.floats(-1e9, 1e9) | st.sampled_from([-math.inf, 0.0])


def dominates(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((a >= b).all() and (a > b).any())


def slow_ranks(f: np.ndarray) -> list[int]:
    """Fronts peeled one after another, as Deb et al. define them."""
    rank, left, front = [0] * len(f), set(range(len(f))), 0
    while left:
        now = {i for i in left if not any(dominates(f[j], f[i]) for j in left)}
        for i in now:
            rank[i] = front
        left, front = left - now, front + 1
    return rank


def slow_crowding(f: np.ndarray, rank: list[int]) -> list[float]:
    """The procedure crowding-distance-assignment, front by front."""
    distance = [0.0] * len(f)
    for front in set(rank):
        members = [i for i in range(len(f)) if rank[i] == front]
        for m in range(f.shape[1]):
            order = sorted(members, key=lambda i: f[i, m])
            distance[order[0]] = distance[order[-1]] = math.inf
            span = f[order[-1], m] - f[order[0], m]
            for before, i, after in zip(order, order[1:], order[2:], strict=False):
                distance[i] += (f[after, m] - f[before, m]) / span if span else 0.0
    return distance


def slow_hypervolume(f: np.ndarray, reference: np.ndarray) -> float:
    """Every cell of the grid that the points' coordinates make is dominated or it is not."""
    f = f[(f > reference).all(axis=1)]
    edges = [np.unique(np.append(f[:, m], reference[m])) for m in range(f.shape[1])]
    total = 0.0
    for cell in product(*(range(len(one) - 1) for one in edges)):
        top = np.array([edges[m][i + 1] for m, i in enumerate(cell)])
        sides = [edges[m][i + 1] - edges[m][i] for m, i in enumerate(cell)]
        total += math.prod(sides) * bool((f >= top).all(axis=1).any())
    return total


@given(points(SMALL) | points(ANY))
def test_ranks(f: np.ndarray) -> None:
    assert pareto.ranks(f).tolist() == slow_ranks(f)


@given(points(SMALL) | points(st.floats(-1e9, 1e9)))
def test_crowding(f: np.ndarray) -> None:
    rank = slow_ranks(f)
    np.testing.assert_allclose(pareto.crowding(f, np.array(rank)), slow_crowding(f, rank), rtol=1e-9)


@given(points(ANY))
def test_crowding_is_never_nan(f: np.ndarray) -> None:
    assert not np.isnan(pareto.crowding(f, pareto.ranks(f))).any()


@given(points(SMALL), st.integers(1, 24))
def test_the_best(f: np.ndarray, n: int) -> None:
    rank = slow_ranks(f)
    distance = slow_crowding(f, rank)
    chosen = pareto.best(f, n).tolist()
    assert chosen == sorted(range(len(f)), key=lambda i: (rank[i], -pareto.crowding(f, np.array(rank))[i]))[:n]
    for kept in chosen:
        for lost in set(range(len(f))) - set(chosen):
            assert not dominates(f[lost], f[kept])
            assert rank[kept] < rank[lost] or distance[kept] >= distance[lost] - 1e-9


@given(points(SMALL, 2, 3), st.integers(-4, 1))
def test_hypervolume(f: np.ndarray, level: int) -> None:
    reference = np.full(f.shape[1], float(level))
    assert pareto.hypervolume(f, reference) == pytest.approx(slow_hypervolume(f, reference), abs=1e-12)


def test_hypervolumes_known_by_hand() -> None:
    assert pareto.hypervolume(np.array([[-0.0, -1.0], [-1.0, -0.0]]), [-2, -2]) == 3.0
    x = np.linspace(0, 1, 20_001)
    front = -np.column_stack([x, 1 - np.sqrt(x)])  # of ZDT1: 1.21 - 1/3
    assert pareto.hypervolume(front, [-1.1, -1.1]) == pytest.approx(1.21 - 1 / 3, abs=1e-4)


@given(points(SMALL), st.randoms(use_true_random=False))
def test_order_does_not_matter_to_ranks(f: np.ndarray, random: Any) -> None:
    order = list(range(len(f)))
    random.shuffle(order)
    assert pareto.ranks(f[order]).tolist() == pareto.ranks(f)[order].tolist()
