"""CMA-ES against the package that it is made of, fed the same samples."""

from __future__ import annotations

import math
from typing import Any

import cmaes
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from evorl.ec.cma_es import CMAES, Strategy
from evorl.ec.core import Evaluation
from evorl.ec.space import Space
from evorl.util.errors import BadRequest

SPACE = Space(Space.box([-5.0] * 2, [5.0] * 2).genes, 3, lambda n: np.full(3, 0.5, np.float32))


def vectors(evolver: Strategy, asked: list[Any]) -> np.ndarray:
    return np.array([evolver.space.vector(one.genes, one.weights) for one in asked]) / evolver.scales


@pytest.mark.parametrize("kind", [cmaes.CMA, cmaes.SepCMA])
def test_it_learns_what_the_package_learns(kind: type) -> None:
    evolver = CMAES(population=8, separable_above=1 if kind is cmaes.SepCMA else 10).evolver(SPACE, 2)
    package = kind(evolver.cma.mean.copy(), 1.0, population_size=8)
    for _ in range(20):
        asked = evolver.ask()
        x = vectors(evolver, asked)
        f = -((x - 0.7) ** 2 @ np.array([1, 10, 100, 1, 1]))
        evolver.tell([Evaluation(one, (worth,)) for one, worth in zip(asked, f.tolist(), strict=True)])
        package._eigen_decomposition()
        package.tell([(one, -worth) for one, worth in zip(x, f.tolist(), strict=True)])
        np.testing.assert_allclose(evolver.cma.mean, package.mean)
        np.testing.assert_allclose(evolver.cma._C, package._C)
        assert evolver.cma._sigma == pytest.approx(package._sigma)


def test_threads_change_nothing() -> None:
    def found(threads: int) -> Any:
        with threadpool_limits(threads, user_api="blas"):
            evolver = CMAES(population=40).evolver(Space(weights=150), 1)
            for _ in range(6):
                evolver.tell([Evaluation(o, (-float(((o.weights - 0.3) ** 2).sum()),)) for o in evolver.ask()])
            return [one.weights for one in evolver.ask()]

    assert np.array_equal(found(1), found(2))


@pytest.mark.parametrize("separable", [False, True])
def test_samples_have_the_mean_and_the_covariance(separable: bool) -> None:
    evolver = CMAES(population=20_000, separable_above=1 if separable else 10, sigma=0.2).evolver(Space(weights=3), 0)
    c = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]])
    if separable:
        c = np.diag(np.diag(c))
    evolver.cma._C = np.diag(c).copy() if separable else c
    evolver.cma._sigma, evolver.cma._mean = 3.0, np.array([1.0, 2.0, 3.0])
    x = np.array([one.weights for one in evolver.ask()], np.float64)
    np.testing.assert_allclose(x.mean(0), 0.2 * np.array([1, 2, 3]), atol=0.03)
    np.testing.assert_allclose(np.cov(x.T), 0.2**2 * 9 * c, atol=0.03)


def test_genes_are_drawn_again_where_they_leave_their_bounds() -> None:
    """Rather than heaped on a bound, as long as there is room."""
    space = Space.box([0.0], [1.0])
    evolver = CMAES(population=2000, gene_sigma=0.3).evolver(space, 0)
    evolver.cma._mean = np.array([0.1]) / 0.3
    x = np.array([one.genes[0] for one in evolver.ask()])
    assert ((x == 0) | (x == 1)).mean() < 0.01 and x.mean() > 0.2


def test_who_failed_neither_draws_nor_repels() -> None:
    evolver = CMAES(population=8).evolver(SPACE, 2)
    asked = evolver.ask()
    package = cmaes.CMA(evolver.cma.mean.copy(), 1.0, population_size=8)
    x = vectors(evolver, asked)
    worth = [1.0, math.nan, 3.0, math.nan, 2.0, math.nan, 0.0, 5.0]
    package.tell([(evolver.cma.mean.copy() if math.isnan(f) else one, math.inf if math.isnan(f) else -f)
                  for one, f in zip(x, worth, strict=True)])  # fmt: skip
    evolver.tell([Evaluation(one, (f,)) for one, f in zip(asked, worth, strict=True)])
    np.testing.assert_allclose(evolver.cma.mean, package.mean)
    before = evolver.cma.mean.copy()
    evolver.tell([Evaluation(one, (math.nan,)) for one in evolver.ask()])
    assert np.array_equal(evolver.cma.mean, before)


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("failed", [1, 5, 9])
def test_the_covariance_is_that_of_the_sound_ones(separable: bool, failed: int) -> None:
    """Hansen 2016, eq. 46 and 47, with the sums over those that did not fail."""
    evolver = CMAES(population=10, separable_above=1 if separable else 10).evolver(SPACE, 4)
    cma = evolver.cma
    asked = evolver.ask()
    before, y = cma._C.copy(), vectors(evolver, asked) - cma.mean  # sigma is 1 here
    evolver.tell([Evaluation(one, (math.nan if i < failed else float(i),)) for i, one in enumerate(asked)])
    w, n = cma._weights[: 10 - failed], len(before)  # of sep-CMA-ES, weights of the better half alone
    y = y[failed:][::-1][: len(w)]
    if not separable:
        w_io = w * np.where(w >= 0, 1, n / ((np.linalg.inv(before) @ y.T * y.T).sum(0) + 1e-8))
        rank_mu, rank_one = sum(a * np.outer(b, b) for a, b in zip(w_io, y, strict=True)), np.outer(cma._pc, cma._pc)
    else:
        rank_mu, rank_one = sum(a * b**2 for a, b in zip(w, y, strict=True)), cma._pc**2
    c1, cmu = cma._c1, cma._cmu
    length = np.linalg.norm(cma._p_sigma) / math.sqrt(1 - (1 - cma._c_sigma) ** (2 * (cma._g + 1)))
    stalled = 0.0 if length < (1.4 + 2 / (n + 1)) * cma._chi_n else cma._cc * (2 - cma._cc)
    wanted = (1 + c1 * stalled - c1 - cmu * w.sum()) * before + c1 * rank_one + cmu * rank_mu
    np.testing.assert_allclose(cma._C, wanted, atol=1e-9)


@pytest.mark.parametrize("failed", [0, 10, 20])
def test_the_covariance_does_not_grow_with_those_that_fail(failed: int) -> None:
    spread = []
    for seed in range(4):
        evolver, draw = CMAES(population=30).evolver(Space(weights=6), seed), np.random.default_rng(seed)
        for _ in range(30):
            worth = draw.normal(size=30)
            worth[draw.permutation(30)[:failed]] = math.nan
            evolver.tell([Evaluation(one, (float(f),)) for one, f in zip(evolver.ask(), worth, strict=True)])
        spread.append(np.linalg.slogdet(evolver.cma._C)[1] / 12)
    assert -1.0 < np.mean(spread) < 0.0


def test_long_after_the_end_it_still_goes_on() -> None:
    evolver = CMAES(population=6).evolver(Space.box([-1.0] * 2, [1.0] * 2), 0)
    for _ in range(1500):
        asked = evolver.ask()
        evolver.tell([Evaluation(one, (-float((one.genes**2).sum()),)) for one in asked])
    assert all(np.isfinite(one.genes).all() for one in evolver.ask())
    assert evolver.population[0].objectives[0] > -1e-12


def test_a_state_is_not_that_of_a_later_generation() -> None:
    evolver = CMAES(population=6).evolver(SPACE, 0)
    state = evolver.state_dict()
    mean = state["cma"]["_mean"].copy()
    evolver.tell([Evaluation(one, (float(one.id),)) for one in evolver.ask()])
    assert np.array_equal(state["cma"]["_mean"], mean) and not np.array_equal(evolver.cma.mean, mean)


def test_too_few_say_nothing() -> None:
    with pytest.raises(BadRequest, match=r"population: must be at least 4"):
        CMAES(population=3)
