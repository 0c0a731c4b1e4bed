"""Ratings: the worked example of Glicko-2, Bradley and Terry's maximum of likelihood, and what must not matter."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from evorl.ops.ratings import ELO, Glicko, bradley_terry, expected, glicko2, glicko2_of_all


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
        alone = [
            math.log(expected(r * ELO, np.array(0.0))) + math.log(expected(np.array(0.0), r * ELO)) for r in rating
        ]
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


def test_games_of_a_period_count_at_once() -> None:
    """Against each player by itself, under the ratings before the period."""
    rng, rated = np.random.default_rng(0), [Glicko()] * 4
    periods = [
        [(a, b, float(rng.integers(3)) / 2) for a, b in itertools.combinations(range(4), 2) for _ in range(3)]
        for _ in range(5)
    ]
    for games in periods:
        rated = [
            glicko2(
                rated[k],
                [rated[a + b - k] for a, b, _ in games if k in (a, b)],
                [points if a == k else 1 - points for a, b, points in games if k in (a, b)],
            )
            for k in range(4)
        ]
    assert np.array(glicko2_of_all(periods, 4)) == pytest.approx(np.array(rated))
    mixed = [[games[i] for i in rng.permutation(len(games))] for games in periods]
    assert np.array(glicko2_of_all(mixed, 4)) == pytest.approx(np.array(rated))


def test_who_does_not_play_for_a_period_becomes_less_certain() -> None:
    before, after = (glicko2_of_all([[(0, 1, 1.0), (1, 2, 0.5)] * 9, *rest], 3) for rest in ([], [[(0, 1, 0.5)]]))
    assert after[2].rating == before[2].rating and after[2].deviation > before[2].deviation
    assert after[0].rating < before[0].rating and after[0].deviation < before[0].deviation


def test_glicko_2_comes_near_the_strengths_that_the_games_follow() -> None:
    rng, strength = np.random.default_rng(1), np.array([1700.0, 1550.0, 1450.0, 1300.0])
    periods = [
        [
            (a, b, float(rng.random() < expected(strength[a], strength[b])))
            for a, b in itertools.combinations(range(4), 2)
            for _ in range(4)
        ]
        for _ in range(100)
    ]
    rated = glicko2_of_all(periods, 4)
    for player, true in zip(rated, strength, strict=True):
        assert abs(player.rating - true) < 3 * player.deviation < 120
