"""The rules of two-sided vector Pong, for G games at once.

The field is 160 x 160 pixels, its upper edge at y = 34 of a picture of 210 x 160. The ball is
4 x 4, the bats 5 x 15, 16 pixels from their side. Positions are upper left corners, in whole pixels;
velocities (pixels per step) are real. One step of a game:

1. The round's clock advances; each bat moves up or down by ``bat_speed`` or stays; it stops at the field's edge.
2. The ball's corner moves by its velocity, truncated toward zero. Then at most one of these happens, in this order:
   a. The ball touches the upper or lower wall while moving toward it: vy flips, and the ball is put at the wall.
   b. The ball reached a bat's plane in this step, and the bat covers the crossing point (edges included): vx flips, vy
      grows by ``spin`` times the bat's intended move (even if the field's edge stopped the bat), and the ball is put on
      the plane at the crossing point, truncated.
   So a ball that touches a wall in the step in which it reaches a bat's plane passes that bat.
3. A ball beyond the left or right edge is a point for the other side. A round of more than ``round_steps`` steps is a
   tie; a point on the last step counts as a point. After either, the next round is served from the centre and its clock
   is reset; the bats stay where they are.

A side observes 10 numbers: its own and the other bat's y, then the last four positions (x, y) of the ball, oldest
first, all relative to the field and divided by 160. The right side observes 1 - x. At the start of an episode the
three earlier positions are (0.5, 0.5). After a point the history keeps the last positions of the previous round. The
ball's corner is the left one for both sides, so the right side's view is mirrored except for these 4 pixels.

Randomness: episode ``key`` has its own stream (`evorl.util.seed.uniform`). Draw 0 chooses the
learner's side (right from 0.5 on); draws 3r + 1, 3r + 2, 3r + 3 are round r's serve: |vy| within its
range, the sign of vx, the sign of vy (positive from 0.5 on); draw 2^32 + 2t + side is the random player's
action after t steps of the episode.

Source: a new implementation of Lamarckian's Pong (Bai et al. 2022, arXiv 2209.10055).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from evorl.mdp.core import Array
from evorl.util import seed
from evorl.util.errors import BadRequest
from evorl.util.types import Count, NonNegative

SIZE = 160  # the field's width and height
TOP = 34
BALL = 4
BAT_WIDTH, BAT_INSET = 5, 16
MIDDLE_X, MIDDLE_Y = (SIZE - BALL) // 2, TOP + (SIZE - BALL) // 2  # where the ball's corner is served
TO_EDGE = (SIZE - BALL) // 2  # from the middle to an edge, for the ball's corner
TO_BAT = TO_EDGE - BAT_INSET - BAT_WIDTH  # from the middle to a bat's plane
UP, STAY, DOWN = range(3)
RANDOM_PLAYER = 2**32  # the random players' first draw

# NumPy handles 0-d arrays twice as fast as Python numbers
_TOP, _MIDDLE_X, _MIDDLE_Y, _TO_EDGE, _TO_BAT = map(np.array, map(float, (TOP, MIDDLE_X, MIDDLE_Y, TO_EDGE, TO_BAT)))
_TICK = np.array(1)


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Weights of rewards for behaviour, added to the points of a step."""

    lazy: float = 0.0
    """Times -1 for every action other than stay."""
    busy: float = 0.0
    """Times +1 for every step in which the bat moves by at least a pixel."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The parameters of the game."""

    rounds: Count = 20
    round_steps: Count = 1000
    """Steps after which a round is a tie."""
    bat_speed: Count = 4
    """Pixels per step."""
    bat_height: Annotated[int, Meta(ge=1, le=SIZE)] = 15
    """Pixels."""
    ball_speed: Count = 4
    """Horizontal pixels per step."""
    serve: tuple[NonNegative, NonNegative] = (0.3, 1.0)
    """Range of a serve's vertical speed, as a fraction of ball_speed."""
    spin: NonNegative = 0.7
    """Share of a bat's vertical speed that the ball takes on."""
    reward: Behaviour = Behaviour()
    """Rewards added to the points of a step; results count points only."""

    def __post_init__(self) -> None:
        if self.serve[0] > self.serve[1]:
            raise BadRequest(f"the range {list(self.serve)} is empty", "serve")


class Games:
    """The complete state of G games.

    Side 0 is the left, side 1 the right one. ``y`` holds the tops of the left bat, the right bat and the ball.
    """

    SAVED = ("key", "y", "x", "vx", "vy", "time", "deadline", "round", "score")

    def __init__(self, rules: Rules, keys: Array) -> None:
        count = len(keys)
        self.key = np.zeros(count, np.uint64)
        self.y = np.zeros((3, count))
        self.bats, self.ball = self.y[:2], self.y[2]
        self.x, self.vx, self.vy = np.zeros((3, count))
        self.time = np.zeros(count, np.int64)  # steps since the episode began
        self.deadline = np.zeros(count, np.int64)  # the time beyond which the round is a tie
        self.round = np.zeros(count, np.int64)
        self.score = np.zeros((2, count), np.int64)
        self.serves = np.zeros((2, rules.rounds + 1, count))  # vx and vy of each round; follows from the key
        self.scratch = Scratch(rules, count)
        begin(rules, self, np.arange(count), keys)


class Scratch:
    """Preallocated memory of `advance`."""

    def __init__(self, rules: Rules, count: int) -> None:
        self.lowest = np.array(float(TOP + SIZE - rules.bat_height))  # lowest y of a bat
        # distance from the middle at which a ball has passed a bat
        self.behind = np.array(float(TO_BAT + rules.ball_speed))
        self.away, self.rise, self.height, self.before = np.zeros((4, count))
        self.event, self.late = np.zeros((2, count), np.bool_)


def begin(rules: Rules, games: Games, which: Array, keys: Array) -> None:
    """Start the episodes ``keys`` in the games ``which`` (both [n])."""
    games.key[which] = keys
    games.bats[:, which] = TOP + SIZE // 2 - rules.bat_height // 2
    games.time[which] = 0
    games.round[which] = 0
    games.score[:, which] = 0
    games.serves[:, :, which] = draw_serves(rules, keys)
    _serve(rules, games, which)


def draw_serves(rules: Rules, keys: Array) -> Array:
    """Return velocities (vx, vy) of all serves of the given episodes, [2, rounds + 1, n]; the last is never played."""
    counters = np.arange(1, 3 * (rules.rounds + 1) + 1).reshape(-1, 3, 1)
    draws = seed.uniform(keys, counters)
    low, high = rules.serve
    vx = np.where(draws[:, 1] < 0.5, -1.0, 1.0) * rules.ball_speed
    vy = np.where(draws[:, 2] < 0.5, -1.0, 1.0) * rules.ball_speed * (low + (high - low) * draws[:, 0])
    return np.stack([vx, vy])


def _serve(rules: Rules, games: Games, which: Array) -> None:
    games.x[which] = MIDDLE_X
    games.ball[which] = MIDDLE_Y
    games.vx[which], games.vy[which] = games.serves[:, games.round[which], which]
    games.deadline[which] = games.time[which] + rules.round_steps


def advance(rules: Rules, games: Games, moves: Array) -> tuple[Array, Array]:
    """Advance every game by one step, in place. ``moves``: the bats' intended moves in pixels, [2, G].

    Returns the games whose round ended, [n], and the winners, [n]: 1 left, -1 right, 0 for a tie.
    """
    games.time += _TICK
    bats = games.bats
    bats += moves
    np.maximum(bats, _TOP, out=bats)
    np.minimum(bats, games.scratch.lowest, out=bats)
    _move_ball(rules, games, moves)
    return _end_rounds(rules, games)


def _move_ball(rules: Rules, games: Games, moves: Array) -> None:
    scratch, x, y = games.scratch, games.x, games.ball
    x += games.vx
    np.copyto(scratch.before, y)
    y += games.vy
    np.trunc(y, out=y)
    walls = _bounce_off_walls(games)
    away = np.abs(np.subtract(x, _MIDDLE_X, out=scratch.away), out=scratch.away)
    np.greater_equal(away, _TO_BAT, out=scratch.event)
    np.less(away, scratch.behind, out=scratch.late)  # else it had already passed the bat
    np.logical_and(scratch.event, scratch.late, out=scratch.event)
    scratch.event[walls] = False
    reached = scratch.event.nonzero()[0]
    if len(reached):
        _bounce_off_bats(rules, games, moves, reached)


def _bounce_off_walls(games: Games) -> Array:
    """Reflect balls that touch a wall and move toward it; return their games."""
    scratch = games.scratch
    np.subtract(games.ball, _MIDDLE_Y, out=scratch.rise)
    np.abs(scratch.rise, out=scratch.height)
    np.greater_equal(scratch.height, _TO_EDGE, out=scratch.event)
    near = scratch.event.nonzero()[0]
    if len(near):
        near = near[scratch.rise[near] * games.vy[near] > 0]
        vy = games.vy[near]
        games.ball[near] = np.copysign(TO_EDGE, vy) + MIDDLE_Y
        games.vy[near] = -vy
    return near


def _bounce_off_bats(rules: Rules, games: Games, moves: Array, which: Array) -> None:
    """Reflect balls that crossed a bat's plane where the bat is."""
    vx, vy = games.vx[which], games.vy[which]
    side = (vx > 0).astype(np.intp)
    plane = np.copysign(TO_BAT, vx) + MIDDLE_X
    gap = plane - (games.x[which] - vx)
    cross = gap / vx * vy + games.scratch.before[which]
    bat = games.y[side, which]
    hit = ((cross + BALL >= bat) & (cross <= bat + rules.bat_height)).nonzero()[0]
    which = which[hit]
    games.x[which] = plane[hit]
    games.ball[which] = np.trunc(cross[hit])
    games.vx[which] = -vx[hit]
    games.vy[which] = vy[hit] + rules.spin * moves[side[hit], which]
    games.scratch.away[which] = TO_BAT


def _end_rounds(rules: Rules, games: Games) -> tuple[Array, Array]:
    scratch = games.scratch
    np.greater(scratch.away, _TO_EDGE, out=scratch.event)
    np.greater(games.time, games.deadline, out=scratch.late)
    np.logical_or(scratch.event, scratch.late, out=scratch.event)
    ended = scratch.event.nonzero()[0]
    if not len(ended):
        return ended, ended
    beyond = games.x[ended] - MIDDLE_X
    point = np.sign(beyond) * (np.abs(beyond) > TO_EDGE)
    games.score[0, ended] += point > 0
    games.score[1, ended] += point < 0
    games.round[ended] += 1
    _serve(rules, games, ended)
    return ended, point


def rule_moves(rules: Rules, games: Games, out: Array) -> None:
    """Write the rule player's moves for both sides, [2, G]: down if the bat's centre is above the ball's, else up."""
    below = games.ball - ((rules.bat_height - BALL) / 2 + 0.25)  # heights are whole or half: never equal to a bat's
    np.subtract(below, games.bats, out=out)
    np.copysign(rules.bat_speed, out, out=out)


def random_moves(rules: Rules, games: Games, out: Array) -> None:
    """Write a random player's moves for both sides, [2, G]."""
    counters = RANDOM_PLAYER + 2 * games.time + np.arange(2)[:, None]
    np.floor(3 * seed.uniform(games.key, counters), out=out)
    out -= 1
    out *= rules.bat_speed
