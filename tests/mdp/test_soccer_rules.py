"""What the rules of soccer promise: how long things last, and that neither team has an advantage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from soccer_oracle import alike, busy_games, drawn_commands, slow, turned, turned_commands, with_ties

from evorl.mdp.soccer.arena import Body
from evorl.mdp.soccer.parameters import Ball, Field, Restart, Rules, Tackle
from evorl.mdp.soccer.rule_player import RulePlayers
from evorl.mdp.soccer.rules import (
    CORNER,
    GOAL_KICK,
    KICK_OFF,
    PLAY,
    THROW_IN,
    Commands,
    Games,
    advance,
    kick_off,
    kick_off_places,
    new_games,
)

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


# ------------------------------------------------------------------ a restart


def still(count: int) -> Commands:
    none = np.zeros((count, 2), np.float32)
    return Commands(np.stack([none, none]), none, none > 0)


def steps_barred(rules: Rules, games: Games) -> list[int]:
    """For how many steps a player of the other team, who stands beside the ball, may not kick it."""
    count = len(games.mode)
    other = np.stack([games.team == 1, games.team == 0], 1)  # [G, N]
    barred = np.zeros(count, np.int64)
    for _ in range(40):
        beside = games.ball + np.stack([np.zeros(count), np.where(games.ball[1] > 0, -0.8, 0.8)])
        there = games._replace(at=np.where(other, beside[:, :, None], games.at).astype(np.float32))
        kicks = still(count)._replace(kick=(other * rules.body.shot).astype(np.float32))
        barred += advance(rules, XP, there, kicks).games.ball_velocity.any(0) == 0
        games = advance(rules, XP, games, still(count)).games
    return barred.tolist()


@pytest.mark.parametrize(("time", "steps"), [(3.0, 30), (0.1, 1), (0.0, 0)])
def test_a_restart_bars_the_other_team_for_its_time(time: float, steps: int) -> None:
    """At the beginning, after a goal, and after a ball that was out."""
    rules = Rules(team_size=1, restart=Restart(time=time, distance=0.0))
    keys = np.arange(1, 5).astype(np.uint64)
    games = new_games(rules, keys)
    assert steps_barred(rules, games) == [steps] * 4
    games = games._replace(
        ball=np.array([[19.5, 19.5, 19.5, 5], [0, 8, 8, 12.5]], np.float32), mode=np.full(4, PLAY),
        ball_velocity=np.array([[20, 20, 20, 0], [0, 0, 0, 20]], np.float32), touched=np.array([0, 0, 1, 1]),
    )  # fmt: skip
    outcome = advance(rules, XP, games, still(4))
    places = kick_off_places(rules, keys, np.ones(4, np.int64), np.ones(4, np.int64))
    games = kick_off(rules, XP, outcome.games, outcome.goal, places)
    assert games.mode.tolist() == [KICK_OFF, GOAL_KICK, CORNER, THROW_IN] and games.team.tolist() == [1, 1, 0, 0]
    assert steps_barred(rules, games) == [steps] * 4


@pytest.mark.parametrize("up", [1, -1])
def test_who_throws_in_stands_at_the_line_that_the_ball_crossed(up: int) -> None:
    """Also where the ball then lies in the middle, since the field is no wider than player and ball."""
    rules = Rules(team_size=1, field=Field(width=1.1, goal=1.0))
    games = new_games(rules, np.ones(1, np.uint64))._replace(
        ball=np.array([[9], [0.5 * up]], np.float32), ball_velocity=np.array([[0], [9 * up]], np.float32)
    )
    games = advance(rules, XP, games, still(1)).games
    assert games.mode.tolist() == [THROW_IN] and games.ball[1, 0] == 0
    assert games.at[1, 0, games.team[0]] == pytest.approx(0.55 * up)


# ------------------------------------------------------------------ ends exchanged


def same(rules: Rules, one: Games, two: Games) -> int:
    """How many of the games are alike."""
    return sum(alike(slow(rules, one, game), slow(rules, two, game)) for game in range(len(one.mode)))


def rule_players(rules: Rules, strength: Any) -> RulePlayers:
    return RulePlayers(rules, XP, np.repeat(np.array([1, -1], np.float32), rules.team_size), strength)


@pytest.mark.parametrize("strength", ["weak", "middle", "strong"])
@pytest.mark.parametrize(("ties", "others"), [(False, 1), (True, 0)])
def test_a_game_turned_round_is_the_same_game(ties: bool, others: int, strength: Any) -> None:
    """Also where distances are equal, and places 0; rounding may decide elsewhere."""
    rules, count = Rules(team_size=5), 300
    games = busy_games(rules, 5, count)
    games = with_ties(games) if ties else games
    rule, error = rule_players(rules, strength), np.zeros((count, 10), np.float32)
    ours, theirs = rule.commands(games, error), turned_commands(rule.commands(turned(games), error))
    assert np.allclose(ours.move, theirs.move, atol=1e-5) and np.array_equal(ours.kick, theirs.kick)
    for commands in (ours, drawn_commands(rules, 5, count)):
        after = advance(rules, XP, games, commands).games
        again = advance(rules, XP, turned(games), turned_commands(commands)).games
        assert same(rules, after, turned(again)) >= count - others


@pytest.mark.slow_cases(but=("weak",))
@pytest.mark.parametrize("strength", ["weak", "middle", "strong"])
def test_a_whole_game_without_scatter_is_the_same_turned_round(strength: Any) -> None:
    rules, keys = Rules(team_size=3, seconds=20, restart=Restart(scatter=0.0)), np.arange(1, 5).astype(np.uint64)
    rule, error = rule_players(rules, strength), np.zeros((len(keys), 6), np.float32)

    def played(games: Games) -> Games:
        games, goal, _, _ = advance(rules, XP, games, rule.commands(games, error))
        places = kick_off_places(rules, keys, games.score.sum(0), (goal > 0).astype(np.int64))
        return kick_off(rules, XP, games, goal, places)

    games = new_games(rules, keys)
    other = turned(games)
    for step in range(rules.steps):
        games, other = played(games), played(other)
        assert all(np.allclose(x, y, atol=1e-4) for x, y in zip(games, turned(other), strict=True)), step
    assert games.score.any()


@pytest.mark.parametrize("team", [0, 1])
def test_of_equally_near_players_one_of_the_team_that_touched_last_is_first(team: int) -> None:
    """To kick, and to be touched by the ball."""
    rules, looks = Rules(team_size=1), np.array([[[0, 0]], [[1, -1]]], np.float32)
    games = tackler(rules)._replace(touched=np.full(1, team), ball=np.zeros((2, 1), np.float32), view=looks)
    games = games._replace(at=np.array([[[-0.5, 0.5]], [[0, 0]]], np.float32))
    kicked = advance(rules, XP, games, still(1)._replace(kick=np.ones((1, 2), np.float32))).games
    assert kicked.touched.tolist() == [team] and np.sign(kicked.ball_velocity[1, 0]) == 1 - 2 * team
    run = advance(rules, XP, games, still(1)._replace(move=np.array([[[1, -1]], [[0, 0]]], np.float32))).games
    assert run.touched.tolist() == [team] and np.sign(run.ball_velocity[0, 0]) == 1 - 2 * team


@pytest.mark.parametrize(("up", "goal"), [(1.2, 1), (1.5, 0)])
@pytest.mark.parametrize("way", [1, -1])
def test_a_ball_crosses_the_goal_line_where_its_line_does(up: float, goal: int, way: int) -> None:
    """Also if it passes the middle of a small field in the same step."""
    rules = Rules(
        team_size=1, field=Field(length=8, width=6, goal=2), restart=Restart(distance=2), ball=Ball(friction=0.0)
    )
    at = np.array([[[-3, 3]], [[-2.5, -2.5]]], np.float32)  # nobody is in its way
    games = tackler(rules)._replace(at=at, ball=np.array([[-2 * way], [0]], np.float32))
    games = games._replace(ball_velocity=np.array([[8 * way], [up]], np.float32) / np.float32(rules.dt))  # to x = 6
    after = advance(rules, XP, games, commands())
    assert (after.goal * way).tolist() == [goal]  # up * 6 / 8 at x = 4, between posts 1 m from the middle
