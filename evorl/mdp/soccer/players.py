"""What players of soccer observe and do.

Team 1 sees the field turned by half a circle, and its moves are turned back, so that each team plays toward +x in its
own eyes. Letters in shapes: G games, N = 2n players, F numbers of an observation.

A player observes, in this order; places are divided by the half length of the field, velocities by the full speed:

* the ball: its place (2), its place relative to the player (2), its velocity (2);
* itself: place (2), velocity (2), view (2), the share of a tackle and its recovery that is left (1);
* the other players of its team, then the other team, in the order of their numbers: place relative to the player (2),
  velocity (2) and that share (1) of each;
* the game: one of five modes (5), whether the restart is its team's (1), whether its team touched the ball last (1),
  the lead in goals, divided by 3 and clipped (1), the share of the time that is left (1).

A team that a captain decides for observes the ball without the relative place, all players with their view in place of
the relation to a player, and the game.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from evorl.mdp.core import Action, Box, MultiDiscrete
from evorl.mdp.soccer.parameters import Rules
from evorl.mdp.soccer.rules import MODES, PLAY, Commands, Games, Tensor

MOVES = np.array([(0, 0)] + [(np.cos(a), np.sin(a)) for a in np.arange(8) * np.pi / 4], np.float32).round(7)
"""Stand, or run in one of eight directions, the first of which leads to the other goal. [9, 2]"""
NOTHING, PASS, SHOT, TACKLE = range(4)
_BALL, _OWN, _OTHER, _GAME = 6, 7, 5, len(MODES) + 4
_CAPTAIN_BALL, _CAPTAIN_PLAYER = 4, 7
_OF_GAME = (*MODES, "own restart", "own touch", "lead", "time left")


def player_size(players: int) -> int:
    """The numbers that a player observes."""
    return _BALL + _OWN + _OTHER * (2 * players - 1) + _GAME


def team_size(players: int) -> int:
    """The numbers that a captain observes."""
    return _CAPTAIN_BALL + _CAPTAIN_PLAYER * 2 * players + _GAME


def player_names(players: int) -> tuple[str, ...]:
    """What the numbers that a player observes are called."""
    ball = [f"{what} {axis}" for what in ("ball", "way to ball", "ball velocity") for axis in "xy"]
    own = [f"own {what} {axis}" for what in ("place", "velocity", "view") for axis in "xy"]
    others = [*(f"mate {k + 1}" for k in range(players - 1)), *(f"opponent {k + 1}" for k in range(players))]
    seen = ("way x", "way y", "velocity x", "velocity y", "tackle")
    return (*ball, *own, "own tackle", *(f"{who} {what}" for who in others for what in seen), *_OF_GAME)


def captain_names(players: int) -> tuple[str, ...]:
    """What the numbers that a captain observes are called."""
    ball = [f"{what} {axis}" for what in ("ball", "ball velocity") for axis in "xy"]
    seen = [f"{what} {axis}" for what in ("place", "velocity", "view") for axis in "xy"]
    everybody = [f"{who} {k + 1}" for who in ("player", "opponent") for k in range(players)]
    return (*ball, *(f"{who} {what}" for who in everybody for what in (*seen, "tackle")), *_OF_GAME)


def action_space(players: int, continuous: bool) -> Action:
    """The actions of a side that decides for so many players.

    Of each player: its move (9) and what it does with the ball (4); or, continuous, its move (2) and the ball (1): a
    number above 0 is a kick with that share of a shot's speed, one below -0.5 a tackle.
    """
    if continuous:
        return Box((-1.0,) * 3 * players, (1.0,) * 3 * players)
    return MultiDiscrete((len(MOVES), 4) * players)


def commands(rules: Rules, xp: ModuleType, actions: Tensor, continuous: bool, turn: Tensor) -> Commands:
    """The commands in actions [G, N, K] of all players, K = 2 or 3; ``turn`` [N] is -1 for players of team 1."""
    body = rules.body
    if continuous:
        move = xp.stack([actions[..., 0], actions[..., 1]])
        size = xp.sqrt(move[0] * move[0] + move[1] * move[1])
        move = move / xp.where(size > 1, size, 1.0)
        ball = actions[..., 2]
        return Commands(move * turn, xp.where(ball > 0, ball * body.shot, 0.0), ball < -0.5)
    table = xp.asarray(MOVES, device=turn.device)
    which, ball = actions[..., 0], actions[..., 1]
    move = xp.stack([table[:, 0][which], table[:, 1][which]])
    speeds = xp.asarray(np.array([0, body.passing, body.shot, 0], np.float32), device=turn.device)
    return Commands(move * turn, speeds[ball], ball == TACKLE)


class View:
    """The observations of all players, or of both captains, of G games."""

    def __init__(self, rules: Rules, xp: ModuleType, turn: Tensor) -> None:
        n = rules.team_size
        self.rules, self._xp, self._turn = rules, xp, turn
        others = [[j for j in range(i // n * n, i // n * n + n) if j != i] for i in range(2 * n)]
        theirs = [list(range((1 - i // n) * n, (1 - i // n) * n + n)) for i in range(2 * n)]
        self._order = xp.asarray(np.array([a + b for a, b in zip(others, theirs, strict=True)]), device=turn.device)
        """[N, N - 1]: the players that each one sees, in its order."""

    def of_players(self, games: Games) -> Tensor:
        """[G, N, F]"""
        xp, turn = self._xp, self._turn
        at, velocity, ball, ball_velocity, busy = self._scaled(games)
        mine = at * turn
        around = (at[:, :, self._order] - at[:, :, :, None]) * turn[:, None]  # [2, G, N, N - 1]
        moving = velocity[:, :, self._order] * turn[:, None]
        others = xp.stack([around[0], around[1], moving[0], moving[1], busy[:, self._order]], axis=-1)
        relative = ball[:, :, None] * turn - mine
        rows = [*(ball[:, :, None] * turn), *relative, *(ball_velocity[:, :, None] * turn), *mine, *(velocity * turn)]
        own = xp.stack([*rows, *(games.view * turn), busy], axis=-1)
        shape = own.shape[:2]
        n = self.rules.team_size
        about = xp.broadcast_to(self._about(games)[:, :, None], (shape[0], 2, n, _GAME))
        return xp.concat([own, xp.reshape(others, (*shape, -1)), xp.reshape(about, (*shape, _GAME))], axis=-1)

    def of_captains(self, games: Games) -> Tensor:
        """[G, 2, F]"""
        xp, n = self._xp, self.rules.team_size
        at, velocity, ball, ball_velocity, busy = self._scaled(games)
        parts = []
        for team, sign in ((0, 1.0), (1, -1.0)):
            rows = xp.stack([*(at * sign), *(velocity * sign), *(games.view * sign), busy], axis=-1)  # [G, N, 7]
            first, second = rows[:, :n], rows[:, n:]
            ours, theirs = (second, first) if team else (first, second)
            of_ball = xp.stack([*(ball * sign), *(ball_velocity * sign)], axis=-1)
            flat = xp.reshape(xp.concat([ours, theirs], axis=1), (rows.shape[0], -1))
            parts.append(xp.concat([of_ball, flat], axis=-1))
        return xp.concat([xp.stack(parts, axis=1), self._about(games)], axis=-1)

    def _scaled(self, games: Games) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        r = self.rules
        half, speed = r.field.length / 2, r.body.speed
        whole = max(1, r.in_steps(r.tackle.time) + r.in_steps(r.tackle.recovery))
        busy = self._xp.astype(games.recovery, games.at.dtype) / whole
        return games.at / half, games.velocity / speed, games.ball / half, games.ball_velocity / speed, busy

    def _about(self, games: Games) -> Tensor:
        """What a team observes of the game, [G, 2, 9]."""
        xp, dtype = self._xp, games.at.dtype
        teams = xp.arange(2, device=games.mode.device)
        modes = xp.arange(len(MODES), device=games.mode.device) == games.mode[:, None]
        modes = xp.broadcast_to(modes[:, None], (modes.shape[0], 2, len(MODES)))
        ours = (games.team[:, None] == teams) & (games.mode != PLAY)[:, None]
        touched = games.touched[:, None] == teams
        lead = xp.astype(games.score[0] - games.score[1], dtype) / 3
        lead = xp.clip(xp.stack([lead, -lead], axis=1), -1.0, 1.0)
        left = 1 - xp.astype(games.time, dtype) / self.rules.steps
        left = xp.broadcast_to(left[:, None], lead.shape)
        flags = xp.astype(xp.stack([ours, touched], axis=-1), dtype)
        return xp.concat([xp.astype(modes, dtype), flags, xp.stack([lead, left], axis=-1)], axis=-1)
