"""Rule players of three strengths, for both teams of G games at once.

The player of a team that reaches the ball first goes for it; the others keep their places of the formation, moved with
the ball. Who has the ball within reach shoots near the other goal, at the corner that is farther from the nearest
opponent, the left one if both are as far; farther away it dribbles, or plays a pass to a free player who is nearer to
that goal. Strengths differ in how fast they run, how well they aim, whether they pass, and from how far they shoot.
None of them tackles.

The error of an aim comes from the episode's stream: draw 2^33 + 2N t + 2i of player i after t steps
(`evorl.util.seed.uniform`), so a rule player is the same whoever plays against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import numpy as np

from evorl.mdp.soccer.parameters import Rules
from evorl.mdp.soccer.rules import PLAY, Commands, Games, Tensor, barred, formation, length
from evorl.util import seed as seeds

Strength = Literal["weak", "middle", "strong"]
FIRST_AIM = 2**33


@dataclass(frozen=True)
class Skill:
    """The parameters of a strength."""

    speed: float  # share of the full speed
    error: float  # radians: an aim is off by at most this
    shoots: float  # share of the field's length: from how far
    passes: bool


SKILLS: dict[Strength, Skill] = {
    "weak": Skill(speed=0.55, error=0.5, shoots=0.3, passes=False),
    "middle": Skill(speed=0.8, error=0.2, shoots=0.4, passes=False),
    "strong": Skill(speed=1.0, error=0.2, shoots=0.45, passes=True),
}


class RulePlayers:
    """The rule players of both teams of a game's rules."""

    def __init__(self, rules: Rules, xp: ModuleType, turn: Tensor, strength: Strength) -> None:
        home = formation(rules).astype(np.float32)
        self.rules, self.skill = rules, SKILLS[strength]
        self._xp, self._turn = xp, turn
        self._home = xp.asarray(np.concatenate([home, -home], 1)[:, None], device=turn.device)  # [2, 1, N]
        self._second = turn < 0  # the players of team 1, [N]

    def errors(self, keys: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The errors of all aims after ``time`` [G] steps of these episodes: radians, float32 [G, N]."""
        count = 2 * self.rules.team_size
        counter = FIRST_AIM + (count * time[:, None] + np.arange(count)) * 2
        return ((2 * seeds.uniform(keys[:, None], counter) - 1) * self.skill.error).astype(np.float32)

    def commands(self, games: Games, error: Tensor) -> Commands:
        """The commands of all players, whose aims are off by ``error`` [G, N]."""
        xp, r, skill = self._xp, self.rules, self.skill
        ball, velocity = games.ball[:, :, None], games.ball_velocity[:, :, None]
        gap = ball - games.at
        far = length(xp, gap)
        ahead = xp.clip(far / (r.body.speed + length(xp, velocity)), 0.0, 1.5)  # seconds to the ball
        target = gap + velocity * ahead
        goes = self._nearest_of_team(length(xp, target))
        waits = barred(r, xp, games)
        has = (far < 0.9 * r.body.reach) & (games.recovery <= 0) & ~waits

        aim, kick = self._play(games, error)
        depth = xp.where(games.mode == PLAY, games.ball[0], 0.0)
        shift = xp.stack([0.5 * depth, 0.3 * games.ball[1]])[:, :, None]
        home = self._home + shift - games.at
        home = home / xp.clip(length(xp, home), 1.0, None)
        chase = target / xp.clip(length(xp, target), 0.05, None)
        run = xp.where(goes & ~waits, chase, home)
        move = xp.where(has, aim, run * skill.speed)
        return Commands(move, xp.where(has, kick, 0.0), xp.zeros_like(goes))

    def _play(self, games: Games, error: Tensor) -> tuple[Tensor, Tensor]:
        """Where each player would play the ball to, as a unit vector [2, G, N], and how fast [G, N]."""
        xp, r, n = self._xp, self.rules, self.rules.team_size
        half = r.field.length / 2
        first, second = games.at[:, :, :n], games.at[:, :, n:]
        others = xp.concat([_nearest_y(xp, second, half), _nearest_y(xp, first, -half)], axis=1)  # [G, 2]
        others = others[:, :1] * xp.astype(~self._second, others.dtype) + others[:, 1:] * xp.astype(
            self._second, others.dtype
        )
        corner = 0.35 * r.field.goal * xp.where(others * self._turn > 0, -self._turn, self._turn)
        to_goal = xp.stack([half * self._turn - games.at[0], corner - games.at[1]])
        distance = length(xp, to_goal)
        shoots = distance < self.skill.shoots * r.field.length
        kick = xp.where(shoots, xp.full_like(distance, r.body.shot), 0.6 * r.body.passing)
        aim = to_goal / xp.clip(distance, 0.05, None)
        if self.skill.passes and n > 1:
            passes, to_mate = self._passes(games, distance)
            passes = passes & ~shoots
            aim = xp.where(passes, to_mate, aim)
            kick = xp.where(passes, r.body.passing, kick)
        cosine, sine = xp.cos(error), xp.sin(error)
        return xp.stack([aim[0] * cosine - aim[1] * sine, aim[0] * sine + aim[1] * cosine]), kick

    def _passes(self, games: Games, distance: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each player passes, bool [G, N], and the direction of the pass, [2, G, N]."""
        xp, n = self._xp, self.rules.team_size
        whether, where = [], []
        for team in (0, 1):
            ours = slice(team * n, team * n + n)
            theirs = slice((1 - team) * n, (1 - team) * n + n)
            at, goal = games.at[:, :, ours], distance[:, ours]
            gap = at[:, :, None, :] - at[:, :, :, None]  # [2, G, from, to]
            apart = games.at[:, :, theirs][:, :, None, :] - at[:, :, :, None]  # [2, G, player, opponent]
            free = xp.min(length(xp, apart), axis=2)  # how far the nearest opponent is
            pressed = free < 3.0
            far = length(xp, gap)
            better = (goal[:, None, :] < goal[:, :, None] - 2) & (free[:, None, :] > 2.0) & (far > 3) & (far < 18)
            merit = xp.where(better, goal[:, None, :] - free[:, None, :], xp.full_like(far, 1e9))
            best = xp.argmin(merit, axis=2)[:, :, None] == xp.arange(n, device=merit.device)
            to = xp.sum(xp.where(best, gap, 0.0), axis=3)
            whether.append(xp.any(better, axis=2) & pressed)
            where.append(to / xp.clip(length(xp, to), 0.05, None))
        return xp.concat(whether, axis=1), xp.concat(where, axis=2)

    def _nearest_of_team(self, far: Tensor) -> Tensor:
        """The players of each team with the least of ``far`` [G, N]: bool [G, N]."""
        xp, n = self._xp, self.rules.team_size
        which = xp.arange(n, device=far.device)
        parts = [xp.argmin(far[:, part], axis=1)[:, None] == which for part in (slice(0, n), slice(n, 2 * n))]
        return xp.concat(parts, axis=1)


def _nearest_y(xp: ModuleType, at: Tensor, goal: float) -> Tensor:
    """The y of the player of [2, G, n] that is nearest to the goal at (goal, 0): [G, 1]."""
    far = (at[0] - goal) ** 2 + at[1] ** 2
    nearest = xp.argmin(far, axis=1)[:, None] == xp.arange(at.shape[2], device=at.device)
    return xp.sum(xp.where(nearest, at[1], 0.0), axis=1)[:, None]
