"""The rules of soccer in the plane, for G games of n against n at once.

Lengths are metres, times seconds. The field's middle is (0, 0); team 0 plays toward +x, team 1 toward -x. Player k of
team 0 is row k of N = 2n, player k of team 1 row n + k. Vectors are [2, G, N] of players and [2, G] of balls, x first.
The functions are pure and use the operations of the array API standard, so NumPy and torch run the same code. One step
of ``dt`` seconds:

1. A player that is free may begin a tackle: for ``tackle.time`` it runs straight ahead at ``tackle.speed``, and then
   stands for ``tackle.recovery``. Other players approach their wanted velocity with the time constant ``inertia``.
   Nobody runs farther than ``margin`` beyond the lines.
2. During a restart, players of the other team that are within ``restart.distance`` of the ball are moved to that
   distance. Two players that overlap are moved apart, half of the overlap each.
3. Of the free players that kick and have the ball within ``reach``, the nearest one kicks: the ball leaves in the
   direction of its move (of its view if it does not move) with the speed of the kick.
4. The ball moves straight. It stops its way at the first player that it touches and is deflected there: of its velocity
   relative to the player it keeps the share ``control`` along the player's surface, and bounces off with that share.
   A player that tackles touches the ball from ``tackle.reach``. Then the ball slows down by ``friction``. Of players
   that are equally near here or in 3, one of the team that touched the ball last is the first.
5. A ball that crosses a goal line between the posts is a goal, and the other team kicks off. Across a side line the
   other team throws in where it left. Across a goal line it is a corner for the attackers if the defenders touched it
   last, else a goal kick. The nearest player of the team is put at the ball, and the other team may not touch it until
   it was played, or ``restart.time`` has passed.

Randomness: at a kick-off each player stands within ``scatter`` of its place. The draws of kick-off c in the episode
``key`` (`evorl.util.seed.uniform`) are 4096 c + 2i and 4096 c + 2i + 1 for player i; draw 2^32 chooses who kicks off
first.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from evorl.mdp.soccer.parameters import Rules
from evorl.util import seed as seeds

Tensor = Any  # an array of the body: NumPy's or torch's
PLAY, KICK_OFF, THROW_IN, GOAL_KICK, CORNER = range(5)
MODES = ("play", "kick-off", "throw-in", "goal kick", "corner")
DRAWS = 4096  # of a kick-off
FIRST = 2**32
_TINY = 1e-6


class Games(NamedTuple):
    """The complete state of G games."""

    at: Tensor  # [2, G, N]: places of players
    velocity: Tensor  # [2, G, N]
    view: Tensor  # [2, G, N]: unit vectors, the direction that a player looks to
    tackling: Tensor  # int64 [G, N]: steps that are left of a tackle
    recovery: Tensor  # int64 [G, N]: steps until a player is free again, tackle included
    ball: Tensor  # [2, G]
    ball_velocity: Tensor  # [2, G]
    touched: Tensor  # int64 [G]: the team that touched the ball last
    mode: Tensor  # int64 [G]: PLAY, or the restart that has not been played yet
    team: Tensor  # int64 [G]: the team whose restart it is
    left: Tensor  # int64 [G]: steps that are left of the restart
    score: Tensor  # int64 [2, G]
    time: Tensor  # int64 [G]: steps since the episode began


OF_PLAYERS = ("at", "velocity", "view", "tackling", "recovery")


class Commands(NamedTuple):
    """What all players do."""

    move: Tensor  # [2, G, N]: direction times share of the full speed, at most as long as the team's factor of it
    kick: Tensor  # [G, N]: speed of the ball after a kick; 0 for none
    tackle: Tensor  # bool [G, N]


class Outcome(NamedTuple):
    """What happened in a step."""

    games: Games
    goal: Tensor  # int64 [G]: 1 if team 0 scored, -1 if team 1 did, else 0
    out: Tensor  # bool [G]: the ball left the field, or went into a goal
    over: Tensor  # bool [G]: the game has ended


# ------------------------------------------------------------------ beginnings


def formation(rules: Rules) -> np.ndarray:
    """The places [2, n] of team 0 at the other team's kick-off: a keeper, then lines of up to four players."""
    n, length, width = rules.team_size, rules.field.length, rules.field.width
    places = [(-0.45 * length, 0.0)] if n > 1 else []
    lines = max(1, math.ceil((n - 1) / 4))
    sizes = [len(line) for line in np.array_split(np.arange(max(n - 1, 1)), lines)]
    for number, size in enumerate(sizes):
        x = -length * (0.33 - 0.21 * number / max(lines - 1, 1)) if lines > 1 else -0.22 * length
        places += [(x, width * ((k + 0.5) / size - 0.5) * 0.8) for k in range(size)]
    return np.array(places, np.float64).T


def kick_off_places(rules: Rules, keys: np.ndarray, number: np.ndarray, team: np.ndarray) -> np.ndarray:
    """Where the players stand, float32 [2, G, N], at kick-off ``number`` [G] of these episodes, which ``team`` has.

    The last player of that team stands at the ball.
    """
    n, home = rules.team_size, formation(rules)
    draws = seeds.uniform(keys[:, None], DRAWS * number[:, None] + np.arange(4 * n)).reshape(len(keys), 2 * n, 2)
    places = np.concatenate([home, -home], 1)[:, None] + rules.restart.scatter * (2 * draws - 1).transpose(2, 0, 1)
    beside = rules.body.radius + rules.ball.radius + 0.1
    for side in (0, 1):
        ours = team == side
        places[0, ours, side * n + n - 1] = (2 * side - 1) * beside
        places[1, ours, side * n + n - 1] = 0.0
    return places.astype(np.float32)


def first_team(keys: np.ndarray) -> np.ndarray:
    """The team that kicks off first in these episodes, int64 [G]."""
    return (seeds.uniform(keys, FIRST) >= 0.5).astype(np.int64)


def new_games(rules: Rules, keys: np.ndarray) -> Games:
    """The beginnings of these episodes, of NumPy's arrays."""
    count, n = len(keys), rules.team_size
    team = first_team(keys)
    still, none = np.zeros((2, count), np.float32), np.zeros(count, np.int64)
    ahead = np.zeros((2, count, 2 * n), np.float32)
    ahead[0, :, :n], ahead[0, :, n:] = 1, -1
    return Games(
        at=kick_off_places(rules, keys, np.zeros(count, np.int64), team),
        velocity=np.zeros((2, count, 2 * n), np.float32), view=ahead,
        tackling=np.zeros((count, 2 * n), np.int64), recovery=np.zeros((count, 2 * n), np.int64),
        ball=still, ball_velocity=still.copy(), touched=team, mode=none + KICK_OFF, team=team.copy(),
        left=none + rules.in_steps(rules.restart.time), score=np.zeros((2, count), np.int64),
        time=none.copy(),
    )  # fmt: skip


def chosen_games(xp: ModuleType, games: Games, others: Games, which: Tensor) -> Games:
    """``others`` in place of the games ``which``, bool [G]."""
    pairs = zip(games._asdict().items(), others, strict=True)
    return Games(*(xp.where(which[:, None] if name in OF_PLAYERS else which, y, x) for (name, x), y in pairs))


# ------------------------------------------------------------------ one step


def advance(rules: Rules, xp: ModuleType, games: Games, commands: Commands) -> Outcome:
    """One step of every game. After a goal the players stand where they were: see `kick_off`."""
    games = _run(rules, xp, games, commands)
    games = _keep_apart(rules, xp, games)
    games, kicker = _kick(rules, xp, games, commands)
    before = games.ball
    games = _roll(rules, xp, games, kicker)
    games, goal, out = _lines(rules, xp, games, before)
    games = _count(xp, games, out)
    over = games.time >= rules.steps
    if rules.goals is not None:
        over = over | (games.score[0] + games.score[1] >= rules.goals)
    return Outcome(games, goal, out, over)


def _run(rules: Rules, xp: ModuleType, games: Games, commands: Commands) -> Games:
    """Rule 1."""
    t = rules.tackle
    free = games.recovery <= 0
    begins = free & commands.tackle
    whole = rules.in_steps(t.time)
    tackling = xp.where(begins, whole, games.tackling)
    recovery = xp.where(begins, whole + rules.in_steps(t.recovery), games.recovery)
    size = length(xp, commands.move)
    turns = free & ~begins & (size > _TINY)
    view = xp.where(turns, commands.move / xp.where(size > _TINY, size, 1.0), games.view)
    runs = xp.where(free & ~begins, commands.move * rules.body.speed, 0.0)
    wanted = xp.where(tackling > 0, games.view * t.speed, runs)
    velocity = games.velocity + (wanted - games.velocity) * (1 - math.exp(-rules.dt / rules.body.inertia))
    at = games.at + velocity * rules.dt
    x, y = (rules.field.length / 2 + rules.field.margin, rules.field.width / 2 + rules.field.margin)
    at = xp.stack([xp.clip(at[0], -x, x), xp.clip(at[1], -y, y)])
    return games._replace(at=at, velocity=velocity, view=view, tackling=tackling, recovery=recovery)


def _keep_apart(rules: Rules, xp: ModuleType, games: Games) -> Games:
    """Rule 2."""
    at = games.at
    waits = barred(rules, xp, games)
    away = at - games.ball[:, :, None]
    far = length(xp, away)
    outward = away / xp.where(far > _TINY, far, 1.0)
    at = xp.where(waits & (far < rules.restart.distance), games.ball[:, :, None] + outward * rules.restart.distance, at)
    gap = at[:, :, :, None] - at[:, :, None, :]  # [2, G, N, N]
    squared = gap[0] * gap[0] + gap[1] * gap[1]
    both = 2 * rules.body.radius
    near = (squared < both * both) & (squared > _TINY * _TINY)
    distance = xp.sqrt(xp.where(near, squared, 1.0))
    push = xp.where(near, 0.5 * (both - distance) / distance, 0.0)
    return games._replace(at=at + xp.sum(gap * push, axis=3))


def _kick(rules: Rules, xp: ModuleType, games: Games, commands: Commands) -> tuple[Games, Tensor]:
    """Rule 3; also return who kicks, bool [G, N]."""
    far = length(xp, games.at - games.ball[:, :, None])
    may = (commands.kick > 0) & (far < rules.body.reach) & (games.recovery <= 0) & ~barred(rules, xp, games)
    far = xp.where(may, far, math.inf)
    kicker = may & _first_least(rules, xp, far, games.touched)
    kicked = xp.any(may, axis=1)
    kick = games.view * commands.kick
    velocity = xp.where(kicked, xp.sum(xp.where(kicker, kick, 0.0), axis=2), games.ball_velocity)
    return _touch(rules, xp, games._replace(ball_velocity=velocity), kicker, kicked), kicker


def _roll(rules: Rules, xp: ModuleType, games: Games, kicker: Tensor) -> Games:
    """Rule 4."""
    way = games.ball_velocity * rules.dt  # [2, G]
    gap = games.at - games.ball[:, :, None]  # [2, G, N]
    long = way[0] * way[0] + way[1] * way[1]
    share = _dot(gap, way[:, :, None]) / xp.where(long > _TINY, long, 1.0)[:, None]
    share = xp.clip(share, 0.0, 1.0)  # of the way, where the ball is nearest to the player
    nearest = length(xp, gap - way[:, :, None] * share)
    size = xp.where(games.tackling > 0, xp.full_like(share, rules.tackle.reach), rules.body.radius + rules.ball.radius)
    nearing = _dot(gap, games.ball_velocity[:, :, None] - games.velocity) > 0
    touches = (nearest < size) & nearing & ~kicker & ~barred(rules, xp, games)
    toucher = touches & _first_least(rules, xp, xp.where(touches, share, math.inf), games.touched)
    touched = xp.any(touches, axis=1)

    def of_toucher(values: Tensor) -> Tensor:
        return xp.sum(xp.where(toucher, values, 0.0), axis=-1)

    ball = games.ball + way * xp.where(touched, of_toucher(share), 1.0)
    normal = ball - of_toucher(games.at)
    far = length(xp, normal)
    normal = xp.where(far > _TINY, normal / xp.where(far > _TINY, far, 1.0), of_toucher(games.view))
    ball = xp.where(touched, of_toucher(games.at) + normal * xp.maximum(far, of_toucher(size)), ball)
    body = of_toucher(games.velocity)
    relative = games.ball_velocity - body
    along = _dot(relative, normal)
    toward = xp.clip(along, None, 0.0)
    deflected = body + rules.body.control * (relative - 2 * toward * normal)
    velocity = xp.where(touched, deflected, games.ball_velocity) * math.exp(-rules.ball.friction * rules.dt)
    return _touch(rules, xp, games._replace(ball=ball, ball_velocity=velocity), toucher, touched)


def _lines(rules: Rules, xp: ModuleType, games: Games, before: Tensor) -> tuple[Games, Tensor, Tensor]:
    """Rule 5, without the kick-off after a goal; also return the goals and which balls left the field."""
    x, y, half, side = games.ball[0], games.ball[1], rules.field.length / 2, rules.field.width / 2
    to_end = (xp.sign(x) * half - before[0]) / xp.where(xp.abs(x) > half, x - before[0], 1.0)
    height = before[1] + (y - before[1]) * to_end  # y where it crosses the goal line
    ends = (xp.abs(x) > half) & (xp.abs(height) <= side)
    out = ends | (xp.abs(y) > side) | (xp.abs(x) > half)
    right = xp.where(x > 0, 1, 0)  # whose goal line: that of team 1 is on the right
    scores = ends & (xp.abs(height) < rules.field.goal / 2)
    goal = xp.where(scores, xp.where(x > 0, 1, -1), 0)
    score = xp.stack([games.score[0] + xp.where(goal > 0, 1, 0), games.score[1] + xp.where(goal < 0, 1, 0)])
    corner = ends & ~scores & (games.touched == right)
    mode = xp.where(ends, xp.where(corner, CORNER, GOAL_KICK), THROW_IN)
    mode = xp.where(scores, KICK_OFF, mode)
    team = xp.where(ends, xp.where(corner, 1 - right, right), 1 - games.touched)
    inside = rules.body.radius + rules.ball.radius
    outward, up = xp.sign(games.ball), xp.sign(height)  # not 0 where they are used: no line is in the middle
    at_corner = xp.stack([outward[0] * (half - inside), up * (side - inside)])
    at_goal = xp.stack([outward[0] * (0.9 * half), up * (rules.field.goal / 2)])
    at_side = xp.stack([xp.clip(x, inside - half, half - inside), outward[1] * (side - inside)])
    spot = xp.where(scores, 0.0, xp.where(corner, at_corner, xp.where(ends, at_goal, at_side)))
    games = games._replace(
        ball=xp.where(out, spot, games.ball), ball_velocity=xp.where(out, 0.0, games.ball_velocity), score=score,
        mode=xp.where(out, mode, games.mode), team=xp.where(out, team, games.team),
        left=xp.where(out, rules.in_steps(rules.restart.time), games.left),
    )  # fmt: skip
    return _take_ball(rules, xp, games, out & ~scores, outward), goal, out


def _take_ball(rules: Rules, xp: ModuleType, games: Games, restarts: Tensor, outward: Tensor) -> Games:
    """Put the nearest player of the team at the ball, between it and the line that it crossed, which is ``outward``."""
    far = length(xp, games.at - games.ball[:, :, None])
    ours = _of_team(rules, xp, games.team)
    taker = ours & _first_least(rules, xp, xp.where(ours, far, math.inf), games.team) & restarts[:, None]
    thrown = games.mode == THROW_IN
    beside = rules.body.radius + rules.ball.radius
    none = xp.zeros_like(outward[0])
    shift = xp.where(thrown, xp.stack([none, outward[1]]), xp.stack([outward[0], none])) * beside
    place = (games.ball + shift)[:, :, None]
    return games._replace(
        at=xp.where(taker, place, games.at), velocity=xp.where(taker, 0.0, games.velocity),
        recovery=xp.where(taker, 0, games.recovery), tackling=xp.where(taker, 0, games.tackling),
    )  # fmt: skip


def _count(xp: ModuleType, games: Games, out: Tensor) -> Games:
    """The step has passed: all of it counted as it was at its beginning, and a restart that was set in it is whole."""
    waits = (games.mode != PLAY) & ~out
    left = xp.where(waits, games.left - 1, games.left)
    return games._replace(
        tackling=xp.where(games.tackling > 0, games.tackling - 1, 0),
        recovery=xp.where(games.recovery > 0, games.recovery - 1, 0),
        left=left, mode=xp.where(waits & (left <= 0), PLAY, games.mode), time=games.time + 1,
    )  # fmt: skip


def kick_off(rules: Rules, xp: ModuleType, games: Games, goal: Tensor, places: Tensor) -> Games:
    """Games in which a goal was scored go on from these places [2, G, N]; the team that let it in kicks off."""
    scored = goal != 0
    team, players = xp.where(goal > 0, 1, 0), scored[:, None]
    n = rules.team_size
    first = xp.arange(2 * n, device=goal.device) < n
    ahead = xp.stack([xp.where(first, xp.ones_like(places[0]), -1.0), xp.zeros_like(places[0])])
    return games._replace(
        at=xp.where(players, places, games.at), velocity=xp.where(players, 0.0, games.velocity),
        view=xp.where(players, ahead, games.view), tackling=xp.where(players, 0, games.tackling),
        recovery=xp.where(players, 0, games.recovery), team=xp.where(scored, team, games.team),
        touched=xp.where(scored, team, games.touched),
    )  # fmt: skip


# ------------------------------------------------------------------ parts


def _touch(rules: Rules, xp: ModuleType, games: Games, player: Tensor, touched: Tensor) -> Games:
    """Note the team of the player [G, N] that touched the ball; its restart is played."""
    second = xp.any(player[:, rules.team_size :], axis=1)
    team = xp.where(second, 1, 0)
    return games._replace(
        touched=xp.where(touched, team, games.touched), mode=xp.where(touched, PLAY, games.mode)
    )  # fmt: skip


def _of_team(rules: Rules, xp: ModuleType, team: Tensor) -> Tensor:
    """The players of a team [G], bool [G, N]."""
    second = xp.arange(2 * rules.team_size, device=team.device) >= rules.team_size
    return (team == 1)[:, None] == second


def barred(rules: Rules, xp: ModuleType, games: Games) -> Tensor:
    """The players that may not touch the ball, bool [G, N]: those of the other team during a restart."""
    return ((games.mode != PLAY) & (games.left > 0))[:, None] & ~_of_team(rules, xp, games.team)


def _first_least(rules: Rules, xp: ModuleType, values: Tensor, team: Tensor) -> Tensor:
    """Where the least of ``values`` [G, N] is, bool [G, N]; of equal ones the first, of this team [G] if it has one."""
    least = values == xp.min(values, axis=1, keepdims=True)
    rank = xp.astype(least, xp.int8) + xp.astype(least & _of_team(rules, xp, team), xp.int8)
    return xp.arange(values.shape[1], device=values.device) == xp.argmax(rank, axis=1)[:, None]


def length(xp: ModuleType, vector: Tensor) -> Tensor:
    """The length of vectors [2, ...]."""
    return xp.sqrt(vector[0] * vector[0] + vector[1] * vector[1])


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return a[0] * b[0] + a[1] * b[1]
