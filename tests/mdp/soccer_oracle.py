"""Soccer as its rules tell it, one game and one player at a time; and games and commands to try rules on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.soccer.parameters import Rules
from evorl.mdp.soccer.players import MOVES
from evorl.mdp.soccer.rules import CORNER, GOAL_KICK, KICK_OFF, PLAY, THROW_IN, Commands, Games, new_games

Vector = tuple[float, float]


@dataclass
class SlowPlayer:
    at: Vector
    view: Vector
    velocity: Vector = (0.0, 0.0)
    tackling: int = 0
    recovery: int = 0


@dataclass
class SlowGame:
    """One game, one player at a time, in floats, as the rules tell it."""

    rules: Rules
    players: list[SlowPlayer]
    ball: Vector
    velocity: Vector
    touched: int
    mode: int
    team: int
    left: int
    score: list[int] = field(default_factory=lambda: [0, 0])
    time: int = 0

    def team_of(self, player: int) -> int:
        return player // self.rules.team_size

    def barred(self, player: int) -> bool:
        return self.mode != PLAY and self.left > 0 and self.team_of(player) != self.team

    def step(self, moves: list[Vector], kicks: list[float], tackles: list[bool]) -> int:
        r = self.rules
        for player, move, tackle in zip(self.players, moves, tackles, strict=True):
            self.run(player, move, tackle)
        self.keep_distance()
        self.push_apart()
        kicker = self.kick(kicks)
        before = self.ball
        self.roll(kicker)
        goal, out = self.lines(before)
        self.time += 1
        for player in self.players:
            player.tackling = max(player.tackling - 1, 0)
            player.recovery = max(player.recovery - 1, 0)
        if self.mode != PLAY and not out:
            self.left -= 1
            if self.left <= 0:
                self.mode = PLAY
        assert r.goals is None
        return goal

    def run(self, player: SlowPlayer, move: Vector, tackle: bool) -> None:
        r = self.rules
        wanted = (0.0, 0.0)
        if player.recovery == 0 and tackle:
            player.tackling = round(r.tackle.time / r.dt)
            player.recovery = player.tackling + round(r.tackle.recovery / r.dt)
        elif player.recovery == 0:
            wanted = (move[0] * r.body.speed, move[1] * r.body.speed)
            size = math.hypot(*move)
            if size > 1e-6:
                player.view = (move[0] / size, move[1] / size)
        if player.tackling > 0:
            wanted = (player.view[0] * r.tackle.speed, player.view[1] * r.tackle.speed)
        share = 1 - math.exp(-r.dt / r.body.inertia)
        vx, vy = (v + share * (w - v) for v, w in zip(player.velocity, wanted, strict=True))
        player.velocity = (vx, vy)
        x, y = r.field.length / 2 + r.field.margin, r.field.width / 2 + r.field.margin
        player.at = (min(max(player.at[0] + r.dt * vx, -x), x), min(max(player.at[1] + r.dt * vy, -y), y))

    def keep_distance(self) -> None:
        for number, player in enumerate(self.players):
            gap = (player.at[0] - self.ball[0], player.at[1] - self.ball[1])
            far = math.hypot(*gap)
            if self.barred(number) and 1e-6 < far < self.rules.restart.distance:
                scale = self.rules.restart.distance / far
                player.at = (self.ball[0] + gap[0] * scale, self.ball[1] + gap[1] * scale)

    def push_apart(self) -> None:
        both, places = 2 * self.rules.body.radius, [player.at for player in self.players]
        for number, player in enumerate(self.players):
            x, y = places[number]
            for other, (ox, oy) in enumerate(places):
                far = math.hypot(x - ox, y - oy)
                if other != number and 1e-6 < far < both:
                    push = 0.5 * (both - far) / far
                    player.at = (player.at[0] + push * (x - ox), player.at[1] + push * (y - oy))

    def kick(self, kicks: list[float]) -> int | None:
        can = [
            (math.dist(player.at, self.ball), self.team_of(number) != self.touched, number)
            for number, player in enumerate(self.players)
            if kicks[number] > 0 and player.recovery == 0 and not self.barred(number)
            and math.dist(player.at, self.ball) < self.rules.body.reach
        ]  # fmt: skip
        if not can:
            return None
        _, _, number = min(can)
        view = self.players[number].view
        self.velocity = (view[0] * kicks[number], view[1] * kicks[number])
        self.touch(number)
        return number

    def touch(self, number: int) -> None:
        self.touched, self.mode = self.team_of(number), PLAY

    def roll(self, kicker: int | None) -> None:
        """The first touch of the ball on its way, found by the point of the way that is nearest to each player."""
        r = self.rules
        way = (self.velocity[0] * r.dt, self.velocity[1] * r.dt)
        long = way[0] ** 2 + way[1] ** 2
        touches = []
        for number, player in enumerate(self.players):
            gap = (player.at[0] - self.ball[0], player.at[1] - self.ball[1])
            share = (gap[0] * way[0] + gap[1] * way[1]) / (long if long > 1e-6 else 1.0)
            share = min(max(share, 0.0), 1.0)
            size = r.tackle.reach if player.tackling > 0 else r.body.radius + r.ball.radius
            relative = (self.velocity[0] - player.velocity[0], self.velocity[1] - player.velocity[1])
            nears = gap[0] * relative[0] + gap[1] * relative[1] > 0
            near = math.hypot(gap[0] - share * way[0], gap[1] - share * way[1]) < size
            if near and nears and number != kicker and not self.barred(number):
                touches.append((share, self.team_of(number) != self.touched, number, size))
        if not touches:
            self.ball = (self.ball[0] + way[0], self.ball[1] + way[1])
        else:
            share, _, number, size = min(touches)
            self.deflect(number, (self.ball[0] + share * way[0], self.ball[1] + share * way[1]), size)
            self.touch(number)
        slow = math.exp(-r.ball.friction * r.dt)
        self.velocity = (self.velocity[0] * slow, self.velocity[1] * slow)

    def deflect(self, number: int, ball: Vector, size: float) -> None:
        player = self.players[number]
        gap = (ball[0] - player.at[0], ball[1] - player.at[1])
        far = math.hypot(*gap)
        normal = (gap[0] / far, gap[1] / far) if far > 1e-6 else player.view
        far = max(far, size)
        self.ball = (player.at[0] + normal[0] * far, player.at[1] + normal[1] * far)
        relative = [a - b for a, b in zip(self.velocity, player.velocity, strict=True)]
        toward = min(relative[0] * normal[0] + relative[1] * normal[1], 0.0)
        keeps = self.rules.body.control
        vx, vy = (
            body + keeps * (part - 2 * toward * n)
            for body, part, n in zip(player.velocity, relative, normal, strict=True)
        )
        self.velocity = (vx, vy)

    def lines(self, before: Vector) -> tuple[int, bool]:
        r, (x, y) = self.rules, self.ball
        half, side, inside = r.field.length / 2, r.field.width / 2, r.body.radius + r.ball.radius
        if abs(x) <= half and abs(y) <= side:
            return 0, False
        self.left = round(r.restart.time / r.dt)
        self.velocity = (0.0, 0.0)
        east, north = (1 if x > 0 else -1), (1 if y > 0 else -1)
        height = before[1] + (y - before[1]) * (east * half - before[0]) / (x - before[0]) if abs(x) > half else 0
        if abs(x) > half and abs(height) < r.field.goal / 2:
            winner = 0 if east > 0 else 1
            self.score[winner] += 1
            self.ball, self.mode, self.team = (0.0, 0.0), KICK_OFF, 1 - winner
            return (1, -1)[winner], True
        if abs(x) > half and abs(height) <= side:
            owner, up = (1 if east > 0 else 0), (1 if height > 0 else -1)
            if self.touched == owner:
                self.ball, self.mode, self.team = (east * (half - inside), up * (side - inside)), CORNER, 1 - owner
            else:
                self.ball, self.mode, self.team = (east * 0.9 * half, up * r.field.goal / 2), GOAL_KICK, owner
            shift = (east * inside, 0.0)
        else:
            self.ball = (min(max(x, inside - half), half - inside), north * (side - inside))
            self.mode, self.team, shift = THROW_IN, 1 - self.touched, (0.0, north * inside)
        first = self.team * r.team_size
        taker = min(range(first, first + r.team_size), key=lambda k: math.dist(self.players[k].at, self.ball))
        player = self.players[taker]
        player.at = (self.ball[0] + shift[0], self.ball[1] + shift[1])
        player.velocity, player.tackling, player.recovery = (0.0, 0.0), 0, 0
        return 0, True


def slow(rules: Rules, games: Games, game: int) -> SlowGame:
    """A game of arrays as the oracle has it."""

    def vector(x: Array) -> Vector:
        return float(x[0]), float(x[1])

    players = [
        SlowPlayer(
            vector(games.at[:, game, k]), vector(games.view[:, game, k]), vector(games.velocity[:, game, k]),
            int(games.tackling[game, k]), int(games.recovery[game, k]),
        )
        for k in range(2 * rules.team_size)
    ]  # fmt: skip
    touched, mode, team, left = (int(x[game]) for x in (games.touched, games.mode, games.team, games.left))
    return SlowGame(
        rules, players, vector(games.ball[:, game]), vector(games.ball_velocity[:, game]), touched, mode, team, left,
        games.score[:, game].tolist(), int(games.time[game]),
    )  # fmt: skip


def alike(a: SlowGame, b: SlowGame, within: float = 2e-4) -> bool:
    whole = (a.touched, a.mode, a.team, a.left, a.score, a.time) == (b.touched, b.mode, b.team, b.left, b.score, b.time)
    pairs = [(a.ball, b.ball), (a.velocity, b.velocity)]
    for p, q in zip(a.players, b.players, strict=True):
        whole = whole and (p.tackling, p.recovery) == (q.tackling, q.recovery)
        pairs += [(p.at, q.at), (p.velocity, q.velocity), (p.view, q.view)]
    return whole and all(math.dist(x, y) < within for x, y in pairs)


def busy_games(rules: Rules, seed: int, count: int) -> Games:
    """Games in which much happens: players and ball near each other, some near the lines, in all modes."""
    draw = np.random.default_rng(seed)
    games = new_games(rules, draw.integers(0, 2**63, count).astype(np.uint64))
    n = 2 * rules.team_size
    size = np.array([rules.field.length / 2, rules.field.width / 2])
    middle = draw.uniform(-1, 1, (2, count)) * size[:, None]
    middle[0] = np.where(draw.random(count) < 0.4, np.sign(middle[0]) * size[0] * 0.98, middle[0])
    middle[1] = np.where(draw.random(count) < 0.3, middle[1] * 0.2, middle[1])
    ball = np.clip(middle, -size[:, None] * 0.99, size[:, None] * 0.99)
    angle = draw.uniform(0, 2 * math.pi, (count, n))
    speed, way = draw.uniform(0, 24, count), draw.uniform(0, 2 * math.pi, count)
    tackling = np.where(draw.random((count, n)) < 0.2, draw.integers(1, 5, (count, n)), 0)
    busy = tackling + np.where(draw.random((count, n)) < 0.3, draw.integers(0, 6, (count, n)), 0)
    return games._replace(
        at=(middle[:, :, None] + draw.normal(0, 1.2, (2, count, n))).astype(np.float32),
        velocity=draw.normal(0, 3, (2, count, n)).astype(np.float32),
        view=np.stack([np.cos(angle), np.sin(angle)]).astype(np.float32),
        tackling=tackling, recovery=busy, ball=ball.astype(np.float32),
        ball_velocity=(np.stack([np.cos(way), np.sin(way)]) * speed).astype(np.float32),
        touched=draw.integers(0, 2, count), team=draw.integers(0, 2, count), left=draw.integers(1, 9, count),
        mode=np.where(draw.random(count) < 0.6, PLAY, draw.integers(0, 5, count)), time=draw.integers(0, 99, count),
    )  # fmt: skip


def with_ties(games: Games) -> Games:
    """The same games with places rounded so that many distances are equal and many places 0."""

    def rounded(x: Array, step: float) -> Array:
        whole: Array = (np.round(x / step) * step).astype(np.float32)
        return whole

    return games._replace(
        at=rounded(games.at, 0.5), ball=rounded(games.ball, 0.5), view=rounded(games.view, 1),
        velocity=rounded(games.velocity, 1), ball_velocity=rounded(games.ball_velocity, 1),
    )  # fmt: skip


def drawn_commands(rules: Rules, seed: int, count: int) -> Commands:
    draw, n = np.random.default_rng(seed + 1), 2 * rules.team_size
    move = MOVES[draw.integers(0, 9, (count, n))].transpose(2, 0, 1)
    kick = np.array([0, rules.body.passing, rules.body.shot], np.float32)[draw.integers(0, 3, (count, n))]
    return Commands(move, kick, draw.random((count, n)) < 0.1)


def swapped(x: Array) -> Array:
    """Numbers of all players with the teams in each other's place."""
    return np.concatenate(np.split(x, 2, -1)[::-1], -1)


def turned_commands(commands: Commands) -> Commands:
    """Those in `turned` games."""
    return Commands(-swapped(commands.move), swapped(commands.kick), swapped(commands.tackle))


def turned(games: Games) -> Games:
    """The same games with the teams in each other's place and the field turned by half a circle."""
    return games._replace(
        at=-swapped(games.at), velocity=-swapped(games.velocity), view=-swapped(games.view),
        tackling=swapped(games.tackling), recovery=swapped(games.recovery), ball=-games.ball,
        ball_velocity=-games.ball_velocity, touched=1 - games.touched, team=1 - games.team, score=games.score[::-1],
    )  # fmt: skip
