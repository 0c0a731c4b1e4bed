"""The rules of slime volleyball, for G games at once.

The field is 48 wide and high, its middle at x = 0, and its ground at y = 1.5. A fence of width 1 and height 3.5 stands
in the middle, with a round top of radius 0.5. A slime is a disc of radius 1.5 whose centre is on the ground, the ball
has radius 0.5. Times are in steps of 1/30 second. One step:

1. Each slime falls. On the ground it jumps if it wants to, else it stands. It runs toward the fence or away from it,
   and stops at the fence and at its wall.
2. After a serve the ball hangs for ``delay`` steps, in which the slimes move. Then it falls, at most ``ball_speed``
   fast.
3. The ball bounces off the left slime, the right slime and the top of the fence, in this order: it is moved outward in
   steps of 0.1 until it does not touch, and its velocity relative to the other is reflected.
4. It bounces off the walls. On the ground it is a point for the other half's side, x = 0 being the left half: the side
   loses a life, and the next ball is served from the middle. Else it bounces off the ceiling and the sides of the
   fence.

Randomness: the velocity of serve r in the episode ``key`` are draws 2r + 1 and 2r + 2 (`evorl.util.seed.uniform`).

Source: rules and numbers of SlimeVolleyGym (David Ha, 2020), which is a port of Neural Slime Volleyball (2015). Unlike
there, what is observed after a point is the new state, and the time limit is a truncation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evorl.mdp.core import Array
from evorl.util import seed as seeds
from evorl.util.types import Count, Positive

SIZE, GROUND = 48.0, 1.5
FENCE_WIDTH, FENCE_HEIGHT = 1.0, 3.5
SLIME, BALL, TOP = 1.5, 0.5, 0.5  # radii
DT = 1 / 30
NUDGE = 0.1
DIRECTION = np.array([[-1.0], [1.0]])  # of a side's own x
MOVES = np.array([0, -1, -1, 0, 1, 1])
"""Toward the fence (-1) or away from it, for each action: stay, forward, forward jump, jump, back jump, back."""
JUMPS = np.array([False, False, True, True, True, False])
STATE = ("key", "x", "y", "vx", "vy", "ball", "before", "velocity", "delay", "lives", "serves", "time")


@dataclass(frozen=True, kw_only=True)
class Slime:
    """What a side's slime has of the common numbers, as factors; 1 is a game of like sides."""

    speed: Positive = 1.0
    """Of ``speed``."""
    jump: Positive = 1.0
    """Of ``jump``."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The parameters of the game."""

    lives: Count = 5
    """Points that a side may lose; the game ends at the last one."""
    time_limit: Count = 3000
    """Steps after which a game is truncated."""
    speed: Positive = 17.5
    """Of a slime on the ground, per second."""
    jump: Positive = 13.5
    """Upward speed of a slime that jumps, per second."""
    gravity: Positive = 29.4
    """Per second squared."""
    ball_speed: Positive = 22.5
    """Highest speed of the ball, per second."""
    delay: Count = 30
    """Steps for which the ball hangs before a rally."""
    left: Slime = Slime()
    """Factors of the left side's own numbers."""
    right: Slime = Slime()
    """Factors of the right side's own numbers."""

    @cached_property
    def speeds(self) -> Array:
        """Of both sides' slimes on the ground, per second, [2, 1]."""
        return self.speed * np.array([[self.left.speed], [self.right.speed]])

    @cached_property
    def jumps(self) -> Array:
        """Upward speeds of both sides' slimes that jump, per second, [2, 1]."""
        return self.jump * np.array([[self.left.jump], [self.right.jump]])


class Games:
    """The complete state of G games. Side 0 is the left one."""

    def __init__(self, count: int) -> None:
        self.key = np.zeros(count, np.uint64)
        self.x, self.y, self.vx, self.vy = np.zeros((4, 2, count))  # of slimes
        self.ball, self.velocity = np.zeros((2, 2, count))  # x and y
        self.before = np.zeros(count)  # the ball's x before it moved
        self.delay = np.zeros(count, np.int64)
        self.lives = np.zeros((2, count), np.int64)
        self.serves = np.zeros(count, np.int64)
        self.time = np.zeros(count, np.int64)


def begin(rules: Rules, games: Games, which: Array, keys: Array) -> None:
    """Start the episodes ``keys`` in the games ``which`` (both [n])."""
    games.key[which] = keys
    games.x[:, which] = DIRECTION * (SIZE / 4)
    games.y[:, which] = GROUND
    games.vx[:, which] = games.vy[:, which] = 0
    games.lives[:, which] = rules.lives
    games.serves[which] = games.time[which] = 0
    _serve(rules, games, which)


def _serve(rules: Rules, games: Games, which: Array) -> None:
    draws = seeds.uniform(games.key[which], 2 * games.serves[which] + np.array([[1], [2]]))
    games.velocity[:, which] = np.array([[-20.0], [10.0]]) + np.array([[40.0], [15.0]]) * draws
    games.ball[0, which], games.ball[1, which] = 0, SIZE / 4
    games.before[which] = 0
    games.delay[which] = rules.delay
    games.serves[which] += 1


def advance(rules: Rules, games: Games, actions: Array) -> Array:
    """One step of every game under the actions [2, G] of both sides. Return who won a point: 1 the left side, -1 the
    right one, else 0, [G]."""
    _move_slimes(rules, games, actions)
    _move_ball(rules, games)
    for side in (0, 1):
        _bounce(games, games.x[side], games.y[side], games.vx[side], games.vy[side], SLIME)
    none = np.zeros_like(games.before)
    _bounce(games, none, none + FENCE_HEIGHT, none, none, TOP)
    lost = _bounce_off_edges(games)
    games.time += 1
    ended = np.flatnonzero(lost)
    if len(ended):
        games.lives[0, ended] -= lost[ended] < 0
        games.lives[1, ended] -= lost[ended] > 0
        _serve(rules, games, ended)
    return lost


def _move_slimes(rules: Rules, games: Games, actions: Array) -> None:
    """Rule 1."""
    games.vy -= rules.gravity * DT
    grounded = games.y <= GROUND + NUDGE * DT
    games.vy[:] = np.where(grounded, np.where(JUMPS[actions], rules.jumps, 0.0), games.vy)
    games.vx[:] = MOVES[actions] * DIRECTION * rules.speeds
    games.x += games.vx * DT
    games.y += games.vy * DT
    landed = games.y <= GROUND
    games.y[landed], games.vy[landed] = GROUND, 0
    own, near, far = games.x * DIRECTION, FENCE_WIDTH / 2 + SLIME, SIZE / 2 - SLIME
    stopped = (own <= near) | (own >= far)
    games.vx[stopped] = 0
    games.x[:] = np.where(stopped, DIRECTION * own.clip(near, far), games.x)


def _move_ball(rules: Rules, games: Games) -> None:
    """Rule 2."""
    flies = games.delay == 0
    games.delay[~flies] -= 1
    velocity = games.velocity.copy()
    velocity[1] -= rules.gravity * DT
    speed = np.hypot(*velocity)
    velocity *= np.where(speed > rules.ball_speed, rules.ball_speed / np.where(speed > 0, speed, 1.0), 1.0)
    games.velocity[:, flies] = velocity[:, flies]
    games.before[flies] = games.ball[0, flies]
    games.ball[:, flies] += velocity[:, flies] * DT


def _bounce(games: Games, x: Array, y: Array, vx: Array, vy: Array, radius: float) -> None:
    """Rule 3, for discs at (x, y) with these velocities, [G] each."""
    gap = games.ball - np.stack([x, y])
    distance = np.hypot(*gap)
    which = np.flatnonzero(distance < BALL + radius)
    if not len(which):
        return
    distance = distance[which]
    normal = gap[:, which] / distance
    games.ball[:, which] += normal * (NUDGE * np.ceil((BALL + radius - distance) / NUDGE))
    other = np.stack([vx, vy])[:, which]
    relative = games.velocity[:, which] - other
    along = relative[0] * normal[0] + relative[1] * normal[1]
    games.velocity[:, which] = relative - 2 * along * normal + other


def _bounce_off_edges(games: Games) -> Array:
    """Rule 4. Return where the ball is on the ground: 1 on the right half, -1 on the left one, else 0."""
    (x, y), (vx, vy) = games.ball, games.velocity
    nudge = NUDGE * DT
    for sign in (-1, 1):
        hit = sign * x >= SIZE / 2 - BALL
        vx[hit], x[hit] = -vx[hit], sign * (SIZE / 2 - BALL - nudge)
    landed = y <= BALL + GROUND
    lost: Array = np.where(landed, np.where(x <= 0, -1, 1), 0)
    hit = ~landed & (y >= SIZE - BALL)
    vy[hit], y[hit] = -vy[hit], SIZE - BALL - nudge
    edge = FENCE_WIDTH / 2 + BALL
    for sign in (1, -1):
        hit = ~landed & (sign * x <= edge) & (sign * games.before > edge) & (y <= FENCE_HEIGHT)
        vx[hit], x[hit] = -vx[hit], sign * (edge + nudge)
    return lost


def observe(games: Games) -> Array:
    """What both sides see, float64 [G, 2, 12], divided by 10: x, y, vx, vy of the own slime, of the ball, and of the
    other slime. The own slime and the ball are mirrored so that a side plays on the right; the other slime is mirrored
    in its own way, so that its x is positive, too."""
    own = np.stack([games.x * DIRECTION, games.y, games.vx * DIRECTION, games.vy])  # [4, 2, G]
    ball = np.stack([games.ball[0] * DIRECTION, np.broadcast_to(games.ball[1], games.x.shape),
                     games.velocity[0] * DIRECTION, np.broadcast_to(games.velocity[1], games.x.shape)])  # fmt: skip
    seen: Array = np.concatenate([own, ball, own[:, ::-1]]).transpose(2, 1, 0) / 10
    return seen
