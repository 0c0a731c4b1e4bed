"""What games say of players, where that is known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, cast

import numpy as np
import pytest

from evorl.matches.judge import Judgement, judge, log_odds, sentences
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
