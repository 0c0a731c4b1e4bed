"""Test problems against pymoo's definitions and the optima that are known."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.mdp.problem import PROBLEMS, Problem
from evorl.training.train import spec
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pymoo.problems import get_problem
    from pymoo.problems.multi.zdt import ZDT5

SIZES = {"zdt5": (80, 35)}
MANY = [name for name in PROBLEMS if name.startswith("dtlz")]


def theirs(name: str, dimensions: int, objectives: int | None) -> Any:
    if name == "zdt5":
        return ZDT5(m=1 + (dimensions - 30) // 5, normalize=False)
    return get_problem(name, n_var=dimensions, **({"n_obj": objectives} if objectives else {}))


def cases() -> list[Any]:
    return [
        pytest.param(name, d, m, id=f"{name}-{d}-{m}")
        for name in PROBLEMS
        for d in SIZES.get(name, (30, 10, 5))
        for m in ((None, 2, 3, 5) if name in MANY else (None,))
    ]


@pytest.mark.parametrize(("name", "dimensions", "objectives"), cases())
def test_the_values_are_pymoos(name: str, dimensions: int, objectives: int | None) -> None:
    problem = Problem(id=name, dimensions=dimensions, objectives=objectives)
    problem.ready()
    low, high = problem.bounds
    x = np.random.default_rng(0).uniform(low, high, (50, dimensions))
    x[0], x[1] = low, high
    if name == "sphere":
        expected = theirs(name, dimensions, None).evaluate(x + 0.5)  # its least is at 0.5
    else:
        expected = theirs(name, dimensions, objectives or problem.count if name in MANY else None).evaluate(
            x >= 0.5 if name == "zdt5" else x
        )
    assert problem.evaluate(x).shape == (50, problem.count) == (50, len(problem.names))
    np.testing.assert_allclose(-problem.evaluate(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name", [name for name in PROBLEMS if name not in ("zdt5", "sphere", "rosenbrock", "rastrigin")]
)
def test_the_bounds_are_pymoos(name: str) -> None:
    low, high = Problem(id=name, dimensions=12).bounds
    peer = theirs(name, 12, 3 if name in MANY else None)
    np.testing.assert_array_equal(low, peer.xl)
    np.testing.assert_array_equal(high, peer.xu)


@given(st.sampled_from(["sphere", "rosenbrock", "rastrigin"]), st.integers(2, 40))
def test_the_minimum_of_one_objective(name: str, dimensions: int) -> None:
    problem = Problem(id=name, dimensions=dimensions)
    best = np.full((1, dimensions), 1.0 if name == "rosenbrock" else 0.0)
    assert abs(problem.evaluate(best)[0, 0]) < 1e-9
    low, high = problem.bounds
    assert (problem.evaluate(np.random.default_rng(dimensions).uniform(low, high, (200, dimensions))) < 0).all()


FRONTS = {
    "zdt1": lambda f: 1 - np.sqrt(f), "zdt2": lambda f: 1 - f**2,
    "zdt3": lambda f: 1 - np.sqrt(f) - f * np.sin(10 * np.pi * f), "zdt4": lambda f: 1 - np.sqrt(f),
    "zdt6": lambda f: 1 - f**2,
}  # fmt: skip


@pytest.mark.parametrize("name", FRONTS)
def test_the_fronts_of_zdt(name: str) -> None:
    problem = Problem(id=name, dimensions=10)
    x = np.zeros((20, 10))
    x[:, 0] = np.linspace(0, 1, 20)
    f = -problem.evaluate(x)
    np.testing.assert_allclose(f[:, 1], FRONTS[name](f[:, 0]), atol=1e-12)


def test_the_front_of_zdt5() -> None:
    x = np.ones((31, 80))
    for ones in range(31):
        x[ones, ones:30] = 0
    f = -Problem(id="zdt5", dimensions=80).evaluate(x)
    np.testing.assert_allclose(f[:, 0], np.arange(1, 32))
    np.testing.assert_allclose(f[:, 1], 10 / f[:, 0])
    worse = x.copy()
    worse[:, 30] = 0  # one bit short is worth the least
    assert (-Problem(id="zdt5", dimensions=80).evaluate(worse)[:, 1] == 15 / f[:, 0]).all()


@given(st.sampled_from(MANY), st.integers(2, 6), st.integers(0, 9), st.integers(0, 2**31))
def test_the_fronts_of_dtlz(name: str, objectives: int, more: int, seed: int) -> None:
    problem = Problem(id=name, dimensions=objectives + more, objectives=objectives)
    x = np.random.default_rng(seed).random((8, problem.dimensions))
    x[:, objectives - 1 :] = 0.0 if name in ("dtlz6", "dtlz7") else 0.5
    f = -problem.evaluate(x)
    if name == "dtlz1":
        np.testing.assert_allclose(f.sum(axis=1), 0.5)
    elif name == "dtlz7":
        h = objectives - np.sum(f[:, :-1] / 2 * (1 + np.sin(3 * np.pi * f[:, :-1])), axis=1)
        np.testing.assert_allclose(f[:, -1], 2 * h)
    else:
        np.testing.assert_allclose((f**2).sum(axis=1), 1.0)
    if name in ("dtlz5", "dtlz6") and objectives > 2:  # a curve: every angle but the first is 45 degrees
        np.testing.assert_allclose(f[:, 0], f[:, 1], atol=1e-12)


@pytest.mark.parametrize(
    ("words", "key", "told"),
    [
        ({"id": "zdt7"}, "id", "did you mean zdt"),
        ({"id": "zdt1", "frame_skip": 2}, "frame_skip", "no episodes"),
        ({"id": "zdt1", "features": ("return",)}, "features", "no episodes"),
        ({"id": "zdt1", "objectives": 3}, "objectives", "zdt1 has 2"),
        ({"id": "sphere", "objectives": 1}, "objectives", "sphere has 1"),
        ({"id": "dtlz2", "objectives": 1}, "objectives", "two or more"),
        ({"id": "zdt5", "dimensions": 33}, "dimensions", "multiple of 5"),
        ({"id": "zdt5", "dimensions": 30}, "dimensions", "multiple of 5"),
        ({"id": "zdt1", "dimensions": 1}, "dimensions", "at least 2"),
        ({"id": "rosenbrock", "dimensions": 1}, "dimensions", "at least 2"),
        ({"id": "dtlz3", "dimensions": 4, "objectives": 5}, "dimensions", "at least 5"),
    ],
)
def test_impossible_problems_are_refused(words: dict[str, Any], key: str, told: str) -> None:
    with pytest.raises(BadRequest, match=told) as caught:
        Problem(**words).ready()
    assert caught.value.key == key


def test_a_problem_has_no_arena() -> None:
    with pytest.raises(BadRequest, match="ec=nsga2"):
        Problem().arena(4, Episodes(1))
    with pytest.raises(BadRequest, match=r"^mdp: .*ec=nsga2"):
        spec(Problem())


def test_points_are_evaluated_independently() -> None:
    for name in PROBLEMS:
        problem = Problem(id=name, dimensions=40)
        x = np.random.default_rng(1).uniform(*problem.bounds, (7, 40))
        alone = np.vstack([problem.evaluate(one[None]) for one in x])
        np.testing.assert_allclose(alone, problem.evaluate(x), rtol=1e-13)
