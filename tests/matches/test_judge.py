"""What games say of players, where that is known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, cast

import numpy as np
import pytest

from evorl.matches.judge import Judgement, judge, log_odds, posterior_points, results, sentences
from evorl.matches.players import RULE, Player
from evorl.matches.records import key
from evorl.util.seed import generator


def judged(chance: Callable[[int, int], float], count: int, games: int = 400, side: float = 0.0) -> Judgement:
    """Judge players of whom i beats j with this chance; side 0 wins so much more often. Later ones come first."""
    learner = cast(Any, object())  # who has none is the rule player
    players = [Player(f"p{i}", f"{9 - i}", learner=learner) for i in range(count - 1)] + [Player(RULE, RULE)]
    points = {}
    for i, j in combinations(range(count), 2):
        names, swapped = key(players[i], players[j])
        drawn = generator("judge", i, j).random(games)
        p = chance(j, i) if swapped else chance(i, j)
        points[names] = (drawn < p + side * np.tile([1, -1], games // 2)).astype(float).tolist()
    return judge(players, points, 0)


def strength(i: int, j: int) -> float:
    """Each player is 100 points of Elo better than the next."""
    return 1 / (1 + 10 ** ((i - j) / 4))


def rock(i: int, j: int) -> float:
    return 0.5 + 0.4 * [0, -1, 1][(j - i) % 3]


def test_ratings_of_players_that_differ_in_strength() -> None:
    found = judged(strength, 4)
    assert found.rating == pytest.approx([150, 50, -50, -150], abs=30)
    assert (found.rating_bounds[0] < [150, 50, -50, -150]).all() and (
        found.rating_bounds[1] > [150, 50, -50, -150]
    ).all()
    assert found.glicko == pytest.approx([1650, 1550, 1450, 1350], abs=60)
    assert (found.glicko_bounds[0] < found.glicko).all() and (found.glicko_bounds[1] - found.glicko < 150).all()
    assert found.nash == pytest.approx([1, 0, 0, 0]) and found.alpha.argmax() == 0
    assert found.cyclic < found.cyclic_by_chance[2] < 0.2
    assert found.exploitability[0] == 0 and (found.exploitability[1:] > 0.05).all()
    assert found.worst.tolist() == [1, 0, 0, 0]
    assert "One rating says who beats whom" in " ".join(sentences(found, list("abcd"), ("left", "right")))


def test_rock_paper_scissors_is_a_cycle() -> None:
    found = judged(rock, 3)
    assert found.nash == pytest.approx([1 / 3] * 3, abs=0.05) and found.alpha == pytest.approx([1 / 3] * 3)
    assert found.cyclic > 0.97 and found.rating == pytest.approx([0, 0, 0], abs=20)
    assert found.exploitability == pytest.approx([0.4] * 3, abs=0.05) and found.uniform_exploitability < 0.02
    said = " ".join(sentences(found, list("abc"), ("left", "right")))
    assert "are what nobody in the set beats" in said
    assert "not only a matter of strength" in said


def test_scores_are_of_the_row_against_the_column() -> None:
    found = judged(strength, 4, side=0.1)
    assert (found.games == 400 * (1 - np.eye(4))).all()
    assert found.score + found.score.T == pytest.approx(np.ones((4, 4)))
    for i, j in combinations(range(4), 2):
        assert found.score[i, j] == pytest.approx(strength(i, j), abs=0.08)
        assert found.score_bounds[0, i, j] < found.score[i, j] < found.score_bounds[1, i, j]
        assert found.by_side[:, i, j].mean() == pytest.approx(found.score[i, j])
        assert found.by_side[0, i, j] == pytest.approx(1 - found.by_side[1, j, i])
        assert found.by_side[0, i, j] > found.by_side[1, i, j]


@pytest.mark.parametrize("side", [0.0, 0.1])
def test_a_side_with_an_advantage_is_seen(side: float) -> None:
    found = judged(strength, 4, side=side)
    share, low, high = found.first_side
    assert low < 0.5 + side < high and low < share < high < low + 0.08
    fair = "no side shows an advantage" in " ".join(sentences(found, list("abcd"), ("left", "right")))
    assert fair == (side == 0)


def test_log_odds_are_antisymmetric_and_finite() -> None:
    wins = np.array([[0, 10, 3], [0, 0, 5], [7, 5, 0.0]])
    games = np.array([[0, 10, 10], [10, 0, 10], [10, 10, 0]])
    odds = log_odds(wins, games)
    assert np.array_equal(odds, -odds.T) and np.isfinite(odds).all()
    assert odds[0, 1] == pytest.approx(np.log(10.5 / 0.5)) and odds[1, 2] == 0


def all_games(points: dict[tuple[str, str], list[float]], count: int = 2) -> Judgement:
    players = [cast(Any, Player(f"p{i}", str(i), learner=cast(Any, object()))) for i in range(count)]
    return judge(players, points, 0)


@pytest.mark.slow_cases(but=("6",))
@pytest.mark.parametrize("games", [6, 20])
def test_who_won_all_games_is_not_sure_to_win_the_next(games: int) -> None:
    """A bootstrap of the games would have an interval without width."""
    found = all_games({("0", "1"): [1.0] * games})
    low, high = found.rating_bounds[:, 0]
    assert low < found.rating[0] - 100 and high >= found.rating[0]


@pytest.mark.slow_cases(but=("6",))
@pytest.mark.parametrize("games", [6, 20])
def test_intervals_hold_the_ratings_of_players_far_apart(monkeypatch: pytest.MonkeyPatch, games: int) -> None:
    """The prior pulls what is drawn to the middle: its quantiles held half of the best and the worst players."""
    monkeypatch.setattr("evorl.matches.judge.RESAMPLES", 40)
    rating, held = np.array([300.0, 100.0, -100.0, -300.0]), 0
    for number in range(20):
        points = {}
        for i, j in combinations(range(4), 2):
            chance = 1 / (1 + 10 ** ((rating[j] - rating[i]) / 400))
            points[str(i), str(j)] = (generator("apart", number, i, j).random(games) < chance).astype(float).tolist()
        low, high = all_games(points, 4).rating_bounds
        held += int(((low < rating) & (rating < high))[[0, 3]].sum())
    assert held >= 33  # of 40; 38 are expected


def test_points_that_could_have_been() -> None:
    """Their mean and deviation are those of a Dirichlet distribution, of either side."""
    played = np.array([[[6, 2, 2], [10, 0, 0]]], np.float64)
    drawn = posterior_points(played, 200_000, generator("posterior"))[:, 0] / 20
    worth = np.array([1, 0.5, 0])
    mean, variance = 0.0, 0.0
    for side in played[0] + 0.5:
        share = side / side.sum()
        mean += float(share @ worth) / 2
        variance += float(share @ worth**2 - (share @ worth) ** 2) / (side.sum() + 1) / 4
    assert drawn.mean() == pytest.approx(mean, abs=1e-3) and drawn.var() == pytest.approx(variance, rel=0.02)


def test_results_of_points() -> None:
    assert results(np.array([1, 1, 0.5, 0, 0.75])).tolist() == [2.5, 1.5, 1]


def draws_and_cycles(cycle: float) -> Judgement:
    """Six players, of whose games four in five are drawn; each beats some others a little more than it should."""
    points = {}
    for i, j in combinations(range(6), 2):
        score = 1 / (1 + np.exp(-0.06 * (i - j))) + cycle * (1 if (i - j) % 3 == 1 else -1)
        chances = [score - 0.4, 0.8, 0.6 - score]
        points[str(i), str(j)] = generator("draws", i, j).choice([1.0, 0.5, 0.0], 200, p=chances).tolist()
    return all_games(points, 6)


def test_games_that_are_mostly_drawn_hide_no_cycles() -> None:
    """Draws make scores less noisy, so chance alone gives fewer cycles."""
    fair, found = draws_and_cycles(0), draws_and_cycles(0.03)
    assert fair.cyclic < fair.cyclic_by_chance[2] < 0.35
    assert found.cyclic > found.cyclic_by_chance[2]
    assert "not only a matter of strength" in " ".join(sentences(found, list("abcdef"), ("left", "right")))


def fair_games(games: int, number: int) -> Judgement:
    points = (generator("fair", games, number).random(games) < 0.5).astype(float)
    return all_games({("0", "1"): points.tolist()})


@pytest.mark.slow_cases(but=("20",))
@pytest.mark.parametrize("games", [20, 100])
def test_fair_sides_are_seldom_said_to_be_unequal(monkeypatch: pytest.MonkeyPatch, games: int) -> None:
    monkeypatch.setattr("evorl.matches.judge.RESAMPLES", 2)
    bounds = [fair_games(games, number).first_side for number in range(100)]
    assert sum(not low <= 0.5 <= high for _, low, high in bounds) <= 12  # 5 are expected


def test_few_games_say_nothing_of_the_sides() -> None:
    for games in (2, 18):
        found = all_games({("0", "1"): [1.0, 0.0] * (games // 2)})
        said = " ".join(sentences(found, list("ab"), ("left", "right")))
        assert f"{games} games a pair are too few to say whether the sides are equal" in said
