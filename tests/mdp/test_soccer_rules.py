"""What the rules of soccer promise, one at a time: how long things last."""

from __future__ import annotations

import numpy as np
import pytest

from evorl.mdp.soccer.arena import Body
from evorl.mdp.soccer.parameters import Rules, Tackle
from evorl.mdp.soccer.rules import PLAY, Commands, Games, advance, new_games

XP = Body.of("cpu").xp


# ------------------------------------------------------------------ a tackle


def tackler(rules: Rules) -> Games:
    """A game of one a side: player 0 is in the middle, and all else is far away."""
    games = new_games(rules, np.ones(1, np.uint64))
    at = np.array([[[0, 15]], [[0, 10]]], np.float32)
    ball = np.array([[-15], [-10]], np.float32)
    return games._replace(at=at, ball=ball, mode=np.full(1, PLAY), touched=np.ones(1, np.int64))


def commands(kick: float = 0.0, tackle: bool = False) -> Commands:
    """Those of player 0, who stands."""
    none = np.zeros((1, 2), np.float32)
    first = np.array([[True, False]])
    return Commands(np.zeros((2, 1, 2), np.float32), none + np.float32(kick) * first, first & tackle)


def tried(rules: Rules, games: Games, now: Commands, beside: float) -> tuple[Games, bool]:
    """A step, and whether player 0 would touch a ball that comes from its side, so far away when it has run."""
    after = advance(rules, XP, games, now).games
    ball = after.at[:, :, 0] + np.array([[0], [beside]], np.float32)
    comes = games._replace(ball=ball, ball_velocity=np.array([[0], [-0.1]], np.float32))
    return after, int(advance(rules, XP, comes, now).games.touched[0]) == 0


@pytest.mark.parametrize(("time", "steps"), [(0.4, 4), (0.1, 1), (0.0, 0)])
def test_a_tackle_reaches_the_ball_in_each_of_its_steps(time: float, steps: int) -> None:
    rules = Rules(team_size=1, tackle=Tackle(time=time, recovery=0.3))
    for beside, expected in ((0.5, 9), (0.75, steps), (0.95, 0)):  # touched by any player, by a tackle, by none
        games, reaches = tackler(rules), []
        for step in range(9):
            games, reached = tried(rules, games, commands(tackle=step == 0), beside)
            reaches.append(reached)
        assert reaches == [True] * expected + [False] * (9 - expected)


def test_a_player_is_free_again_after_its_tackle_and_recovery() -> None:
    """For running and for kicks; what is shown after a step is what is left."""
    rules = Rules(team_size=1, tackle=Tackle(time=0.4, recovery=0.8))
    games = tackler(rules)
    for step in range(13):
        kicks = commands(kick=rules.body.shot)
        assert games.recovery[0, 0] == (12 - step if step else 0)
        assert games.tackling[0, 0] == (max(4 - step, 0) if step else 0)
        _, kicked = tried(rules, games, kicks, 0.95)
        assert kicked == (step in (0, 12))
        games = advance(rules, XP, games, commands(tackle=step == 0)).games
