"""The evolvers of AES-RL's family against golden vectors, and on a sphere with a made-up function for training.

The golden vectors and the ranges on the sphere come from an independent implementation of the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from evorl.ec.acem_rl import ACEMRL
from evorl.ec.aes_rl import AESRL
from evorl.ec.cem_rl import CEMRL
from evorl.ec.core import Evaluation
from evorl.ec.one_plus_one_rl import OnePlusOneRL
from evorl.ec.p_cem_rl import PCEMRL
from evorl.ec.shared_critic import (
    EVOLVED,
    MEAN,
    TRAINED,
    SharedCriticEvolution,
    SteadyStateEvolution,
    training_probability,
)
from evorl.ec.space import Space
from evorl.mdp.core import Array

TWO = Space((), 2)
MU, V, X, M = np.array([0.0, 1.0]), np.array([1e-3, 1e-3]), np.array([0.05, 0.9]), 1000.0

GOLDEN = {  # rule, R: p, mu', v' with n fixed, v' with n adaptive
    ("fixed_linear", 1500): (0.25, [0.0125, 0.975], [1.0875e-3, 1.65e-3], [1.2916666667e-3, 3.1666666667e-3]),
    ("fixed_linear", 600): (0.0, MU, V, V),
    ("fixed_linear", 9000): (1.0, X, [9e-4, 9e-4], [1e-5, 1e-5]),
    ("fixed_sigmoid", 1500): (
        0.562177, [0.02810883, 0.94378235], [1.00946e-3, 1.33782e-3], [1.09456e-3, 4.37823e-3]),
    ("fixed_sigmoid", -1500): (
        0.222700, [0.01113501, 0.97772999], [1.09432e-3, 1.6773e-3], [1.27025e-3, 2.9405e-3]),
    ("baseline_absolute", 1500): (
        0.538462, [0.02692308, 0.94615385], [1.01538e-3, 1.36154e-3], [1.15385e-3, 4.61538e-3]),
    ("baseline_absolute", -1500): (
        0.142857, [0.00714286, 0.98571429], [1.11429e-3, 1.75714e-3], [1.19048e-3, 2.2619e-3]),
    ("baseline_relative", 1500): (
        0.555556, [0.02777778, 0.94444444], [1.01111e-3, 1.34444e-3], [1.11111e-3, 4.44444e-3]),
    ("baseline_relative", 600): (
        0.444444, [0.02222222, 0.95555556], [1.03889e-3, 1.45556e-3], [1.31111e-3, 4.64444e-3]),
    ("baseline_relative", -1500): (0.0, MU, V, V),
    ("baseline_relative", 9000): (
        0.833333, [0.04166667, 0.91666667], [9.4167e-4, 1.06667e-3], [4.1667e-4, 1.66667e-3]),
}  # fmt: skip


@pytest.mark.parametrize("variance_rule", ["fixed", "adaptive"])
@pytest.mark.parametrize(("rule", "r"), GOLDEN)
def test_golden_vectors_of_aes_rl(rule: str, r: float, variance_rule: str) -> None:
    p, mean, fixed, adaptive = GOLDEN[rule, r]
    evolver = AESRL(mean_rule=rule, variance_rule=variance_rule, scale=2000.0).evolver(TWO, 0)
    evolver.mean, evolver.variance = MU.copy(), V.copy()
    found = evolver.update(X, float(r), M)
    assert found["population/update_weight"] == pytest.approx(p, abs=1e-6)
    np.testing.assert_allclose(evolver.mean, mean, atol=1e-8)
    np.testing.assert_allclose(evolver.variance, fixed if variance_rule == "fixed" else adaptive, atol=1e-8)


def test_a_negative_weight_moves_the_mean_away_only_on_request() -> None:
    evolver = AESRL(mean_rule="fixed_linear", negative=0.5).evolver(TWO, 0)
    evolver.mean, evolver.variance = MU.copy(), V.copy()
    assert evolver.update(X, 0.0, M) == {"population/update_weight": -0.25}
    np.testing.assert_allclose(evolver.mean, [-0.0125, 1.025])
    np.testing.assert_array_equal(evolver.variance, V)


@pytest.mark.parametrize(("r", "m"), [(100.0, -50.0), (100.0, -200.0), (50.0, -50.0)])
def test_an_individual_above_a_baseline_that_the_mean_has_not_reached_counts_whole(r: float, m: float) -> None:
    evolver = AESRL(mean_rule="baseline_absolute", baseline=0.0).evolver(TWO, 0)
    assert evolver.update(X, r, m) == {"population/update_weight": 1.0}


@pytest.mark.parametrize("unreached", ["whole", "formula"])
@pytest.mark.parametrize("m", [-50.0, 0.0, 50.0])
def test_an_individual_at_an_absolute_baseline_is_not_above_it(m: float, unreached: str) -> None:
    evolver = AESRL(mean_rule="baseline_absolute", baseline=0.0, unreached=unreached).evolver(TWO, 0)
    assert evolver.update(X, 0.0, m) == {"population/update_weight": 0.0}


@pytest.mark.parametrize(("r", "m", "p"), [(100.0, -50.0, 1.0), (100.0, -200.0, 0.0), (50.0, -50.0, 1.0)])
def test_the_formula_below_a_baseline_is_there_on_request(r: float, m: float, p: float) -> None:
    evolver = AESRL(mean_rule="baseline_absolute", baseline=0.0, unreached="formula").evolver(TWO, 0)
    assert evolver.update(X, r, m) == {"population/update_weight": p}


def test_a_failed_individual_moves_nothing() -> None:
    for hyper in (AESRL(mean_rule="fixed_sigmoid"), OnePlusOneRL()):
        evolver = hyper.evolver(TWO, 0)
        evolver.mean, evolver.variance = MU.copy(), V.copy()
        evolver.update(X, -math.inf, M)
        np.testing.assert_array_equal(evolver.mean, MU)


@pytest.mark.parametrize("hyper", [AESRL(), OnePlusOneRL(window=1), ACEMRL(population=2)])
def test_a_failed_individual_asks_for_no_mean_and_stays_out_of_the_population(hyper: SteadyStateEvolution) -> None:
    evolver = hyper.evolver(TWO, 0)
    while not evolver.population or evolver.waiting or evolver.compared or len(evolver.population) < 2:
        evolver.tell([Evaluation(one, (1.0,)) for one in evolver.ask(1)])
    mean, people, learned = evolver.mean.copy(), list(evolver.population), evolver.generation
    evolver.tell([Evaluation(one, (math.nan,)) for one in evolver.ask(1)])
    assert evolver.ask(1)[0].role == EVOLVED and evolver.generation == learned + 1
    np.testing.assert_array_equal(evolver.mean, mean)
    assert [one.individual.id for one in evolver.population] == [one.individual.id for one in people]


RETURNS = [3, 1, 4, 1.5, 5, 9, 2, 6, 5.5, 3.5]
TEN = np.array([[0.01 * i, -0.02 * i] for i in range(10)])


@pytest.mark.parametrize(
    ("decay", "variance"), [(0.95, [1.670678e-3, 3.8312122e-3]), (0.90, [1.621178e-3, 3.7817122e-3])]
)
def test_golden_vectors_of_cem_rl(decay: float, variance: list[float]) -> None:
    evolver = CEMRL(noise_decay=decay).evolver(TWO, 0)
    evolver.mean = np.zeros(2)
    asked = [one._replace(weights=x) for one, x in zip(evolver.ask(), TEN, strict=True)]
    evolver.tell([Evaluation(one, (float(r),)) for one, r in zip(asked, RETURNS, strict=True)])
    np.testing.assert_allclose(evolver.mean, [0.0579692946, -0.1159385893], atol=1e-9)
    np.testing.assert_allclose(evolver.variance, variance, atol=1e-9)


def test_golden_vectors_of_acem_rl() -> None:
    evolver = ACEMRL(noise_decay=0.90).evolver(TWO, 0)
    evolver.mean = np.zeros(2)
    for x, r in zip(TEN, RETURNS, strict=True):
        np.testing.assert_array_equal(evolver.mean, 0)  # silent until its window is full
        evolver.tell([Evaluation(evolver.ask(1)[0]._replace(weights=x), (float(r),))])
    np.testing.assert_allclose(evolver.mean, [0.00579692946, -0.01159385893], atol=1e-9)
    np.testing.assert_allclose(evolver.variance, [1.7098021e-3, 3.8703363e-3], atol=1e-9)


@pytest.mark.parametrize(("decay", "after"), [
    (0.95, {1: 9.505e-4, 10: 6.0275e-4, 50: 8.618e-5, 100: 1.586e-5}),
    (0.90, {1: 9.01e-4, 10: 3.5519e-4, 50: 1.51e-5, 100: 1.003e-5}),
])  # fmt: skip
def test_the_added_noise_decays_as_the_series_says(decay: float, after: dict[int, float]) -> None:
    evolver = CEMRL(noise_decay=decay).evolver(TWO, 0)
    for generation in range(1, 101):
        evolver.tell([Evaluation(one, (0.0,)) for one in evolver.ask()])
        if generation in after:
            assert evolver.noise == pytest.approx(after[generation], rel=5e-3)


def test_a_generation_of_cem_rl_is_mirrored_and_its_first_half_is_trained() -> None:
    evolver = CEMRL(population=10, trained=3).evolver(TWO, 0)
    assert {one.role for one in evolver.ask()} == {EVOLVED}  # nothing to train with yet
    evolver = CEMRL(population=10, trained=3).evolver(TWO, 0)
    asked = evolver.ask(train=True)
    assert [one.role for one in asked] == [TRAINED] * 3 + [EVOLVED] * 7
    pairs = np.array([one.weights for one in asked])
    np.testing.assert_allclose(pairs[:5] + pairs[5:], 2 * evolver.mean[None].repeat(5, 0), atol=1e-7)


def test_the_share_of_trained_individuals_is_controlled() -> None:
    assert training_probability(10, 10, 0.5, 50) == 0.5
    assert training_probability(51, 49, 0.5, 50) == 0.0
    assert training_probability(49, 51, 0.5, 50) == 1.0
    for share in (0.1, 0.5):
        evolver = ACEMRL(trained_share=share).evolver(TWO, 0)
        roles = [one.role for one in evolver.ask(1000, train=True)]
        assert roles.count(TRAINED) / 1000 == pytest.approx(share, abs=0.01)
    for share, role in ((0.0, EVOLVED), (1.0, TRAINED)):
        evolver = ACEMRL(trained_share=share).evolver(TWO, 0)
        assert {one.role for one in evolver.ask(1000, train=True)} == {role}


@pytest.mark.parametrize(("sliding", "grows"), [(True, True), (False, False)])
def test_the_window_of_the_one_plus_one_strategy_slides(sliding: bool, grows: bool) -> None:
    evolver = OnePlusOneRL(sliding=sliding).evolver(TWO, 0)
    for _ in range(10):
        evolver.update(X, 0.0, 1.0)
    before = evolver.variance.copy()
    for _ in range(20):
        evolver.update(X, 2.0, 1.0)
    assert bool((evolver.variance > before).all()) is grows


def test_the_mean_is_asked_for_after_each_individual_and_compared_as_it_was_then() -> None:
    evolver = AESRL().evolver(TWO, 0)
    x = evolver.ask(1)[0]
    evolver.tell([Evaluation(x, (1.0,))])
    mean, other = evolver.ask(2)
    assert (mean.role, mean.parents, other.role) == (MEAN, (x.id,), EVOLVED)
    np.testing.assert_array_equal(mean.weights, evolver.mean.astype(np.float32))
    before = evolver.mean.copy()
    evolver.tell([Evaluation(other, (2.0,))])
    np.testing.assert_array_equal(evolver.mean, before)
    evolver.tell([Evaluation(mean, (1.0,))])
    np.testing.assert_allclose(evolver.mean, (before + x.weights) / 2)  # p = 1/2 at equal returns


@pytest.mark.parametrize(("hyper", "others"), [(AESRL(), 2), (OnePlusOneRL(), 2), (ACEMRL(), 0)])
def test_staleness_counts_the_individuals_learned_from_until_one_is_learned_from_itself(
    hyper: SteadyStateEvolution, others: int
) -> None:
    """Here ``others`` are, between the return of the first and that of the mean beside it."""
    evolver = hyper.evolver(TWO, 0)
    x, *rest = evolver.ask(3)
    found = evolver.tell([Evaluation(x, (1.0,))])
    if hyper.compares:
        assert "population/staleness" not in found
        (mean,) = evolver.ask(1)
        evolver.tell([Evaluation(one, (2.0,)) for one in rest])
        evolver.tell([Evaluation(one, (1.0,)) for one in evolver.ask(2)])  # their means
        found = evolver.tell([Evaluation(mean, (1.0,))])
    assert found["population/staleness"] == others


def sphere(hyper: SharedCriticEvolution, evaluations: Sequence[int], seed: int) -> list[float]:
    """R of the mean after so many evaluations on R(x) = -100 |x - 1/2|^2, at the end the mean deviation of weights."""
    evolver = hyper.evolver(Space((), 20), seed)

    def worth(x: Array) -> float:
        return float(-100 * np.square(x - 0.5).sum())

    told, found = 0, list[float]()
    for number in evaluations:
        while told < number:
            asked = evolver.ask(1) if hyper.asynchronous else evolver.ask()
            evolver.tell(
                [Evaluation(one, (worth(evolver.mean if one.role == MEAN else one.weights),)) for one in asked]
            )
            told += sum(one.role != MEAN for one in asked)
        found.append(worth(evolver.mean))
    return [*found, float(np.sqrt(evolver.variance).mean())]


Ranges = dict[int, tuple[float, float]]  # evaluations: the median R lies within
D50: dict[str, float] = {"scale": 50.0}
LINEAR: dict[str, Any] = {"mean_rule": "fixed_linear", **D50}
ABSOLUTE: dict[str, Any] = {"mean_rule": "baseline_absolute", "baseline": -600.0}
NEUTRAL: Ranges = {5000: (-592, -373)}  # no optimiser without trained individuals: the mean follows noise
SPHERE: dict[str, tuple[SharedCriticEvolution, Ranges, float | None]] = {  # the last: median deviation at the end
    "cem": (CEMRL(), {500: (-149, -111), 2000: (-19.5, -8.0), 5000: (-0.0098, -0.0041)}, 0.0034),
    "cem, decay 0.9": (CEMRL(noise_decay=0.9), {500: (-246, -205), 2000: (-93.9, -69.6), 5000: (-0.01, 0)}, 0.0034),
    "cem, not divided": (CEMRL(divide=False), {500: (-11.7, -0.89), 2000: (-0.03, 0), 5000: (-0.03, 0)}, 0.0055),
    "p_cem": (PCEMRL(parallel_critic=True), {500: (-149, -111)}, None),
    "acem": (ACEMRL(noise_decay=0.9), {500: (-334, -279), 2000: (-206, -164)}, 0.0034),
    "one plus one": (OnePlusOneRL(), {500: (-1.5, -0.33), 2000: (-0.015, -0.005)}, 0.0032),
    "one plus one, window not sliding": (OnePlusOneRL(sliding=False), {2000: (-22, -14)}, None),
    "linear, fixed": (AESRL(variance_rule="fixed", **LINEAR), {2000: (-300, -245)}, 0.0046),
    "linear": (AESRL(**LINEAR), {2000: (-345, -290)}, None),
    "sigmoid": (AESRL(mean_rule="fixed_sigmoid", **D50), NEUTRAL, 0.0033),
    "relative": (AESRL(**D50), NEUTRAL, 0.0033),
    "absolute": (AESRL(**ABSOLUTE), {2000: (-560, -450)}, 0.0033),
}
LONGER: dict[str, tuple[SharedCriticEvolution, Ranges, float | None]] = {
    "acem, longer": (ACEMRL(noise_decay=0.9), {5000: (-46.6, -30.4)}, 0.0034),
    "one plus one, longer": (OnePlusOneRL(), {5000: (-0.01, -0.005)}, 0.0032),
    "one plus one, window not sliding, longer": (OnePlusOneRL(sliding=False), {5000: (-22, -14)}, 2.5e9),
    "linear, fixed, longer": (AESRL(variance_rule="fixed", **LINEAR), {5000: (-220, -180)}, 0.0046),
    "linear, longer": (AESRL(**LINEAR), {5000: (-225, -175)}, 0.0081),
    "sigmoid, fixed": (AESRL(mean_rule="fixed_sigmoid", variance_rule="fixed", **D50), NEUTRAL, 0.0033),
    "relative, fixed": (AESRL(variance_rule="fixed", **D50), NEUTRAL, 0.0033),
    "absolute, fixed": (AESRL(variance_rule="fixed", **ABSOLUTE), {2000: (-560, -450)}, 0.0033),
    "absolute, longer": (AESRL(**ABSOLUTE), {5000: (-560, -450)}, 0.0033),
}


@pytest.mark.slow_cases(but=("p_cem",))
@pytest.mark.parametrize("case", [*SPHERE, *(pytest.param(name, marks=pytest.mark.learn) for name in LONGER)])
def test_the_sphere_separates_right_from_wrong(case: str) -> None:
    """Ranges are the reference's where it has them; else they lie around its median."""
    hyper, ranges, deviation = (SPHERE | LONGER)[case]
    *medians, spread = np.median([sphere(hyper, list(ranges), seed) for seed in range(8)], 0)
    for (low, high), median in zip(ranges.values(), medians, strict=True):
        assert low <= median <= high
    assert deviation is None or spread == pytest.approx(deviation, rel=0.1)
