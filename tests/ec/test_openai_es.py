"""OpenAI's evolution strategy against its equations, a quadratic's gradient, and replicas fed nothing but fitness."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evorl.ec.core import Evaluation
from evorl.ec.openai_es import Centre, OpenAIES, perturbation
from evorl.ec.seeding import Seeded
from evorl.ec.space import Gene, Space
from evorl.ops.ranks import centred_ranks, normalised

quick = settings(max_examples=30)
MARVIN: dict[str, Any] = {
    "population": 30, "antithetic": False, "shaping": "normalised", "optimizer": "sgd", "momentum": 0.0,
    "weight_decay": 0.0, "sigma": 0.1, "lr": 0.03, "lr_decay": 0.999, "start": "zeros",
}  # fmt: skip
MIXED = Space((Gene("lr", 1e-4, 1e-1, log=True),), 40, lambda n: np.linspace(-1, 1, 40, dtype=np.float32) + n)


def noise_of(hyper: OpenAIES, seed: int, generation: int, size: int) -> np.ndarray:
    """eps_i [N, D] of a generation."""
    if not hyper.antithetic:
        return np.array([perturbation(seed, generation, i, size) for i in range(hyper.population)], np.float64)
    pairs = [perturbation(seed, generation, i // 2, size) for i in range(hyper.population)]
    return np.array([eps if i % 2 == 0 else -eps for i, eps in enumerate(pairs)], np.float64)


def test_a_perturbation_is_a_pure_function_of_its_place() -> None:
    once = perturbation(1, 2, 3, 100)
    perturbation(1, 2, 4, 7)
    assert np.array_equal(once, perturbation(1, 2, 3, 100)) and once.dtype == np.float32
    assert np.array_equal(once[:9], perturbation(1, 2, 3, 9))
    others = [perturbation(*key, 100) for key in ((2, 2, 3), (1, 3, 3), (1, 2, 4))]
    assert not any((once == other).any() for other in others)


def test_perturbations_are_standard_normal() -> None:
    x = np.sort(np.concatenate([perturbation(0, g, i, 1000) for g in range(5) for i in range(40)]).astype(np.float64))
    normal = np.array([(1 + math.erf(one / math.sqrt(2))) / 2 for one in x])
    distance = np.abs(normal - np.arange(1, len(x) + 1) / len(x)).max()
    assert distance * math.sqrt(len(x)) < 1.95  # Kolmogorov-Smirnov, p = 0.001


@quick
@given(st.integers(0, 5), st.sampled_from([2, 5, 8]), st.booleans())
def test_individuals_are_theta_with_their_noise(seed: int, population: int, antithetic: bool) -> None:
    hyper = OpenAIES(population=population, antithetic=antithetic, sigma=0.1)
    evolver = hyper.evolver(MIXED, seed)
    asked = evolver.ask()
    x = evolver.centre.theta + 0.1 * noise_of(hyper, seed, 0, 41)
    np.testing.assert_allclose([one.weights for one in asked], x[:, 1:], atol=1e-6)
    genes = MIXED.low + x[:, 0].clip(0, 1) * (MIXED.high - MIXED.low)
    np.testing.assert_allclose([one.genes[0] for one in asked], genes)


@pytest.mark.slow_cases(but=("True",))
@pytest.mark.parametrize("antithetic", [False, True])
def test_the_gradient_is_that_of_a_quadratic(antithetic: bool) -> None:
    """E over eps of F(theta + sigma eps) has the gradient -H (theta - a) where F is -(x - a) H (x - a) / 2."""
    h, a = np.array([1.0, 2.0, 0.5, 3.0]), np.array([1.0, -1.0, 0.5, 0.0])
    hyper = OpenAIES(population=20_000, sigma=0.1, antithetic=antithetic)
    centre = hyper.centre(Space(weights=4))
    eps = noise_of(hyper, 0, 0, 4)
    f = -((0.1 * eps - a) ** 2 * h).sum(1) / 2
    estimate = centre._gradient(f - f.mean(), [(0, i) for i in range(20_000)])
    np.testing.assert_allclose(estimate, h * a, atol=6 * f.std() / 0.1 / math.sqrt(10_000))
    np.testing.assert_allclose(estimate, ((f - f.mean())[:, None] * eps).mean(0) / 0.1, rtol=1e-5)


def slowly(hyper: OpenAIES, theta: np.ndarray, seed: int, told: list[np.ndarray]) -> np.ndarray:
    """theta after these generations, from the equations, number by number."""
    m, v, lr = [0.0] * len(theta), [0.0] * len(theta), hyper.lr
    theta = theta.copy()
    for generation, f in enumerate(told):
        eps = noise_of(hyper, seed, generation, len(theta))
        u = centred_ranks(f) if hyper.shaping == "centred_ranks" else normalised(f)
        for d in range(len(theta)):
            g = sum(u[i] * eps[i, d] for i in range(len(f))) / (len(f) * hyper.sigma)
            g -= hyper.weight_decay / hyper.sigma * theta[d] if d > 0 else 0.0  # the first is a gene
            if hyper.optimizer == "adam":
                m[d], v[d] = 0.9 * m[d] + 0.1 * g, 0.999 * v[d] + 0.001 * g * g
                t = generation + 1
                theta[d] += lr * (m[d] / (1 - 0.9**t)) / (math.sqrt(v[d] / (1 - 0.999**t)) + 1e-8)
            else:
                m[d] = hyper.momentum * m[d] + (1 - hyper.momentum) * g
                theta[d] += lr * m[d]
        lr *= hyper.lr_decay
    return theta


@pytest.mark.parametrize(
    "options",
    [
        {}, {"optimizer": "sgd"}, {"antithetic": False}, {"population": 7}, {"shaping": "normalised"}, MARVIN,
        {"weight_decay": 0.1, "lr_decay": 0.9},
    ],
)  # fmt: skip
def test_the_step_is_that_of_the_equations(options: dict[str, Any]) -> None:
    hyper = OpenAIES(**{"population": 10, **options})
    centre = hyper.centre(MIXED, 4)
    start = centre.theta.copy()
    told = [np.random.default_rng(g).normal(size=hyper.population) for g in range(5)]
    for f in told:
        centre.update(f)
    np.testing.assert_allclose(centre.theta, slowly(hyper, start, 4, told), rtol=1e-5, atol=1e-6)


def test_the_original_of_marvin() -> None:
    """theta + lr / (n sigma) sum_i A_i eps_i with A the normalised returns."""
    hyper = OpenAIES(**MARVIN)
    centre = hyper.centre(Space(weights=6), 1)
    f = np.random.default_rng(0).normal(size=30)
    centre.update(f)
    advantage = (f - f.mean()) / f.std()
    np.testing.assert_allclose(centre.theta, 0.03 / (30 * 0.1) * advantage @ noise_of(hyper, 1, 0, 6), rtol=1e-5)


def test_a_gene_that_was_pulled_to_its_bound_comes_back() -> None:
    """Beyond it all individuals would be equal, and no difference could lead it back."""
    hyper = OpenAIES(population=16, sigma=0.1, lr=0.05, weight_decay=0.0)
    evolver = hyper.evolver(Space.box([0.0, 0.0], [1.0, 1.0]), 0)
    for sign in (1.0, -1.0):
        for _ in range(300):
            asked = evolver.ask()
            assert (evolver.centre.theta >= 0).all() and (evolver.centre.theta <= 1).all()
            evolver.tell([Evaluation(one, (sign * float(one.genes[0]),)) for one in asked])
        assert evolver.centre.theta[0] == pytest.approx(0.5 + sign / 2, abs=0.1)


def test_without_a_difference_nothing_moves() -> None:
    for shaping in ("centred_ranks", "normalised"):
        centre = OpenAIES(population=6, weight_decay=0, shaping=shaping).centre(MIXED, 0)
        before = centre.theta.copy()
        centre.update(np.full(6, 3.0))
        centre.update(np.full(6, np.nan))
        assert np.array_equal(centre.theta, before) and centre.generation == 2


def test_replicas_that_are_told_only_fitnesses_agree_with_the_evolver() -> None:
    hyper = OpenAIES(population=8, sigma=0.1)
    evolver = hyper.evolver(MIXED, 3)
    evolver.whole = False
    replicas: list[Seeded] = [hyper.centre(MIXED, 3) for _ in range(2)]
    draw = np.random.default_rng(1)
    for generation in range(12):
        if generation == 5:  # one joins, and is given the parameters once
            late = Centre(hyper, MIXED, 3)
            late.load_state_dict(replicas[0].state_dict())
            replicas.append(late)
        asked = evolver.ask()
        assert all(one.weights is None for one in asked)
        rebuilt = [replicas[i % len(replicas)].individual_at(generation, i) for i in range(8)]
        assert [(one.id, one.birth, one.role) for one in asked] == [(one.id, one.birth, one.role) for one in rebuilt]
        f = np.array([-float((one.weights**2).sum()) for one in rebuilt if one.weights is not None])
        f[draw.integers(8)] = np.nan
        evolver.tell([Evaluation(one, (worth,)) for one, worth in zip(asked, f.tolist(), strict=True)])
        for replica in replicas:
            replica.update(f)
        assert {one.hash() for one in replicas} == {evolver.centre.hash()}
    assert len(replicas) == 3 and replicas[2].state_dict()["generation"] == 12
    replicas[0].update(np.arange(8.0))
    assert replicas[0].hash() != evolver.centre.hash()


def test_an_individual_of_another_generation_is_refused() -> None:
    centre = OpenAIES(population=4).centre(MIXED, 0)
    whole = OpenAIES(population=4).evolver(MIXED, 0).ask()[3]
    again = centre.individual_at(0, 3)
    assert again.weights is not None and np.array_equal(whole.weights, again.weights) and whole[:2] == again[:2]
    with pytest.raises(ValueError, match="theta is of generation 0; generation 1"):
        centre.individual_at(1, 0)


def test_the_cap_follows_the_mean_length_of_those_who_did_not_fail() -> None:
    evolver = OpenAIES(population=4, cap=2.0).evolver(MIXED, 0)

    def told(*lengths: float) -> list[Any]:
        asked = evolver.ask()
        f = [math.nan if length < 0 else 1.0 for length in lengths]
        evolver.tell([
            Evaluation(one, (worth,), result={"length": np.array([length, length + 3])})
            for one, worth, length in zip(asked, f, lengths, strict=True)
        ])  # fmt: skip
        return [None if one.memory is None else one.memory.get("cap") for one in asked]

    assert told(10.0, 20.0, 31.0, -9.0) == [None] * 4
    again = OpenAIES(population=4, cap=2.0).evolver(MIXED, 0)
    again.load_state_dict(evolver.state_dict())
    assert again.cap == math.ceil(2 * (61 / 3 + 1.5)) == 44
    assert told(-1.0, -1.0, -1.0, -1.0) == [44] * 4
    assert told(1.0, 1.0, 1.0, 1.0) == [None] * 4 and evolver.cap == 5  # of those before nothing is known


def test_what_a_learner_did_to_the_weights_is_not_inherited() -> None:
    evolvers = [OpenAIES(population=6).evolver(MIXED, 0) for _ in range(2)]
    for change, evolver in enumerate(evolvers):
        asked = evolver.ask()
        evolver.tell([Evaluation(o._replace(weights=o.weights + change), (float(o.id % 5),)) for o in asked])
    assert evolvers[0].centre.hash() == evolvers[1].centre.hash()
