"""NSGA-III: reference directions, what is measured from them, who of the last front survives, and fronts of DTLZ."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymoo.util.ref_dirs import get_reference_directions

from evorl.ec.core import Evaluation, Evolution, Individual, objectives
from evorl.ec.nsga2 import NSGA2
from evorl.ec.nsga3 import NSGA3, directions, nearest, niches, normalised
from evorl.ec.space import Space
from evorl.mdp.problem import Problem
from evorl.ops.pareto import hypervolume

quick = settings(max_examples=60)  # the machine may be busy


@pytest.mark.parametrize(("count", "parts"), [(2, 1), (2, 9), (3, 4), (3, 12), (5, 3)])
def test_directions_are_all_multiples_on_the_simplex(count: int, parts: int) -> None:
    wanted = {p for p in product(range(parts + 1), repeat=count) if sum(p) == parts}
    found = directions(count, 0, parts)
    assert {tuple(row) for row in np.rint(found * parts).astype(int).tolist()} == wanted
    assert len(found) == comb(count + parts - 1, parts)
    theirs = get_reference_directions("das-dennis", count, n_partitions=parts)
    np.testing.assert_allclose(found[np.lexsort(found.T)], theirs[np.lexsort(theirs.T)], atol=1e-12)


@quick
@given(st.integers(2, 6), st.integers(1, 200))
def test_no_more_directions_than_asked_for_and_no_fewer_than_can_be(count: int, most: int) -> None:
    found = directions(count, most)
    parts = round(1 / found[found > 0].min())
    assert len(found) <= max(most, count)
    assert comb(count + parts, parts + 1) > most


def test_one_objective_has_one_direction() -> None:
    assert directions(1, 50).tolist() == [[1.0]]


def test_a_plane_is_measured_by_where_it_meets_the_axes() -> None:
    generator = np.random.default_rng(0)
    on = np.r_[np.eye(3), generator.dirichlet(np.ones(3), 20)]  # the plane of the unit points
    f = 5 + on * [1.0, 2.0, 4.0]
    np.testing.assert_allclose(normalised(f, np.ones(len(f), bool)), on, atol=1e-6)


@pytest.mark.parametrize(
    ("f", "wanted"),
    [
        ([[0, 4, 8], [2, 0, 0], [1, 2, 4]], [[0, 1, 1], [1, 0, 0], [0.5, 0.5, 0.5]]),
        ([[1, 1], [1, 1]], [[0, 0], [0, 0]]),  # no range at all
        ([[0, 0], [3, 4]], [[0, 0], [3, 4]]),  # one point dominates all: no plane, and its front has no range
    ],
)
def test_where_no_plane_is_the_range_of_the_front_counts(f: list[list[float]], wanted: list[list[float]]) -> None:
    points = np.array(f, float)
    first = np.array([not any((other <= p).all() and (other < p).any() for other in points) for p in points])
    np.testing.assert_allclose(normalised(points, first), wanted)


@quick
@given(st.integers(0, 1000))
def test_the_nearest_line_by_definition(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, to = generator.random((7, 3)), directions(3, 10)
    near, distance = nearest(x, to)
    for point, j, d in zip(x, near, distance, strict=True):
        slow = [np.linalg.norm(point - w * (point @ w) / (w @ w)) for w in to]
        assert d == pytest.approx(min(slow), abs=1e-12) and slow[j] == pytest.approx(min(slow), abs=1e-12)


@quick
@given(st.lists(st.integers(0, 4), max_size=12), st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
def test_the_last_front_goes_where_the_fewest_are(kept: list[int], near: list[int], data: st.DataObject) -> None:
    n, seed = data.draw(st.integers(0, len(near))), data.draw(st.integers(0, 99))
    distance = np.random.default_rng(seed).random(len(near))
    chosen = niches(np.random.default_rng(seed), np.array(kept, int), np.array(near), distance, n).tolist()
    assert len(chosen) == len({*chosen}) == n
    count, left = [kept.count(j) for j in range(5)], [*range(len(near))]
    for one in chosen:  # one by one, as Algorithm 4 has it
        assert count[near[one]] == min(count[near[other]] for other in left)
        if count[near[one]] == 0:
            assert distance[one] == min(distance[other] for other in left if near[other] == near[one])
        count[near[one]] += 1
        left.remove(one)


def test_whole_fronts_survive_before_parts_of_the_next() -> None:
    f = [(4.0, 0.0), (0.0, 4.0), (3.0, 0.0), (1.0, 1.0), (0.0, 3.0), (0.0, 0.0)]
    pool = [Evaluation(Individual(n, np.zeros(1), None), one) for n, one in enumerate(f)]
    evolver = NSGA3(population=4).evolver(Space.box([0.0], [1.0]), 0)
    ids = [one.individual.id for one in evolver.survivors(pool[:3], pool[3:])]
    assert {*ids[:3]} == {0, 1, 3} and ids[3] in (2, 4)
    few = NSGA3(population=9).evolver(Space.box([0.0], [1.0]), 0).survivors(pool[:3], pool[3:])
    assert [one.individual.id for one in few] == [0, 1, 3, 2, 4, 5]


def front(kind: Evolution, problem: Problem, generations: int, seed: int) -> np.ndarray:
    evolver = kind.evolver(Space.box(*problem.bounds), seed)
    for _ in range(generations):
        asked = evolver.ask()
        values = problem.evaluate(np.array([one.genes for one in asked]))
        evolver.tell([Evaluation(one, tuple(f)) for one, f in zip(asked, values, strict=True)])
    return objectives(evolver.population)


@pytest.mark.slow_cases(but=("0",))
@pytest.mark.parametrize("seed", range(3))
def test_dtlz2_evenly(seed: int) -> None:
    """The sphere's share of the box, 0.745 where the front is met at every direction; NSGA-II's is less."""
    problem = Problem(id="dtlz2", dimensions=12)
    three, two = (front(kind(population=92), problem, 150, seed) for kind in (NSGA3, NSGA2))
    share = [hypervolume(f, [-1.1] * 3) for f in (three, two)]
    assert share[0] > 0.73 and share[0] > share[1]
    near, _ = nearest(-three, directions(3, 92))
    assert len({*near.tolist()}) >= 85  # of 91


def test_one_objective_is_climbed_too() -> None:
    assert front(NSGA3(population=20), Problem(id="sphere", dimensions=3), 60, 0).max() > -0.01
