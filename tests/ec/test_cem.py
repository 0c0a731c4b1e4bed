"""The cross-entropy method against its equations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evorl.ec.cem import CEM, Strategy
from evorl.ec.core import Evaluation
from evorl.ec.space import Space

SPACE = Space(Space.box([0.0], [10.0]).genes, 3, lambda n: np.full(3, 0.5, np.float32))


def told(evolver: Strategy, worth: list[float]) -> np.ndarray:
    """Tell of a generation; its vectors [N, D]."""
    asked = evolver.ask()
    evolver.tell([Evaluation(one, (f,)) for one, f in zip(asked, worth, strict=True)])
    return np.array([SPACE.vector(one.genes, one.weights) for one in asked])


@pytest.mark.parametrize("weighting", ["log", "equal"])
@pytest.mark.parametrize("around", ["old", "new"])
def test_the_next_distribution_is_that_of_the_equations(weighting: str, around: str) -> None:
    hyper = CEM(population=8, elite=0.5, weighting=weighting, around=around, noise=0.01, noise_end=0.002)
    evolver = hyper.evolver(SPACE, 1)
    noise = 0.01
    for generation in range(4):
        old, noise = evolver.mean.copy(), 0.95 * noise + 0.05 * 0.002
        worth = np.random.default_rng(generation).normal(size=8).tolist()
        z = told(evolver, worth)
        best = sorted(range(8), key=lambda i: -worth[i])[:4]
        raw = [math.log(5 / (rank + 1)) if weighting == "log" else 1.0 for rank in range(4)]
        for d in range(4):
            mean = sum(raw[r] * z[i, d] for r, i in enumerate(best)) / sum(raw)
            centre = old[d] if around == "old" else mean
            spread = sum(raw[r] * (z[i, d] - centre) ** 2 for r, i in enumerate(best)) / sum(raw)
            assert evolver.mean[d] == pytest.approx(mean)
            assert evolver.variance[d] == pytest.approx(spread + noise)
        assert evolver.noise == pytest.approx(noise)


def test_it_begins_at_the_given_spreads() -> None:
    evolver = CEM(population=4000, sigma=0.2, gene_sigma=0.01).evolver(SPACE, 0)
    x = np.array([SPACE.vector(one.genes, one.weights) for one in evolver.ask()])
    np.testing.assert_allclose(x.std(0), [0.01, 0.2, 0.2, 0.2], rtol=0.1)
    np.testing.assert_allclose(x[:, 1:].mean(0), 0.5, atol=0.02)


def test_the_elite_leaves_out_who_failed() -> None:
    evolver = CEM(population=6, elite=0.5).evolver(SPACE, 1)
    z = told(evolver, [math.nan, 1.0, math.nan, math.nan, 2.0, math.nan])
    w = np.log([3.0, 1.5])
    np.testing.assert_allclose(evolver.mean, (w[0] * z[4] + w[1] * z[1]) / w.sum())
    before = evolver.mean.copy(), evolver.variance.copy()
    told(evolver, [math.nan] * 6)
    assert np.array_equal(evolver.mean, before[0]) and np.array_equal(evolver.variance, before[1])


def test_pairs_of_an_asynchronous_search_mirror_each_other() -> None:
    evolver = CEM(population=4, antithetic=True, asynchronous=True).evolver(SPACE, 1)
    evolver.tell([Evaluation(one, (-float(one.id),)) for one in evolver.ask()])
    z = np.array([one.weights - evolver.mean[1:] for _ in range(4) for one in evolver.ask(1)])
    np.testing.assert_allclose(z[::2], -z[1::2], atol=1e-6)
    assert abs(z[0] - z[2]).min() > 1e-3
