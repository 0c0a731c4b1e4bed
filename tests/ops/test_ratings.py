"""Ratings: the worked example of Glicko-2, Bradley and Terry's maximum of likelihood, and what must not matter."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from evorl.ops.ratings import ELO, Glicko, bradley_terry, expected, glicko2


def test_the_worked_example_of_glicko_2() -> None:
    opponents = [Glicko(1400, 30), Glicko(1550, 100), Glicko(1700, 300)]
    player = glicko2(Glicko(1500, 200), opponents, [1, 0, 0])
    assert player.rating == pytest.approx(1464.0507, abs=1e-3)
    assert player.deviation == pytest.approx(151.5165, abs=1e-3)
    assert player.volatility == pytest.approx(0.0599960, abs=1e-7)


def test_an_upset_raises_the_volatility_and_the_expected_does_not() -> None:
    strong, weak = Glicko(2000, 40), Glicko(1200, 40)
    assert glicko2(weak, [strong] * 5, [1] * 5).volatility > weak.volatility
    assert glicko2(strong, [weak] * 5, [1] * 5).volatility <= strong.volatility


def test_without_games_only_the_deviation_grows() -> None:
    player = glicko2(Glicko(1600, 50, 0.06), [], [])
    assert player.rating == 1600 and player.volatility == 0.06
    assert player.deviation == pytest.approx(math.hypot(50, 0.06 * 173.7178))


@pytest.mark.parametrize(("share", "points"), [(0.7, 147.2), (0.75, 190.8)])
def test_two_players_are_as_far_apart_as_elos_scale_says(share: float, points: float) -> None:
    a, b = bradley_terry(np.array([[0, share], [1 - share, 0]]) * 100, prior=1e-9)
    assert a - b == pytest.approx(points, abs=0.05) and a + b == pytest.approx(0)
    assert expected(a, b) == pytest.approx(share)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("prior", [0.5, 3.0])
def test_they_maximise_the_likelihood(seed: int, prior: float) -> None:
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 30, (5, 5)).astype(np.float64)
    np.fill_diagonal(score, 0)

    def loss(rating: np.ndarray) -> float:
        log = sum(
            score[i, j] * math.log(expected(rating[i] * ELO, rating[j] * ELO))
            for i, j in itertools.permutations(range(5), 2)
        )
        alone = [math.log(expected(r * ELO, 0)) + math.log(expected(0, r * ELO)) for r in rating]
        return -log - prior / 2 * sum(alone)

    slow = minimize(loss, np.zeros(5), options={"gtol": 1e-9}).x
    assert bradley_terry(score, prior) == pytest.approx((slow - slow.mean()) * ELO, abs=0.01)


def test_who_wins_everything_has_a_finite_rating() -> None:
    rating = bradley_terry(np.triu(np.full((4, 4), 1000.0), 1))
    assert np.isfinite(rating).all() and (np.diff(rating) < 0).all()


def test_players_who_never_met_need_a_prior() -> None:
    score = np.zeros((4, 4))
    score[0, 1] = score[1, 0] = score[2, 3] = score[3, 2] = 5
    with pytest.raises(ValueError, match="never met"):
        bradley_terry(score, prior=0)
    assert bradley_terry(score) == pytest.approx(np.zeros(4))
