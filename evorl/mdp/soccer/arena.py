"""G games of soccer in lockstep. Letters in shapes: N = 2n players; see `evorl.mdp.team_games` for the others."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.decision_arrays import action_format
from evorl.mdp.soccer.drawing import draw_game
from evorl.mdp.soccer.players import View, commands
from evorl.mdp.soccer.rule_player import RulePlayers
from evorl.mdp.soccer.rules import (
    PLAY,
    Commands,
    Games,
    Outcome,
    Tensor,
    advance,
    chosen_games,
    kick_off,
    kick_off_places,
    new_games,
)
from evorl.mdp.team_games import TeamGames
from evorl.util.seed import Episodes
from evorl.util.types import StateDict

if TYPE_CHECKING:
    from evorl.mdp.soccer.world import Soccer


class SoccerArena(TeamGames):
    """A side is a captain, or a player. The time that is left is observed, so all ends are terminations.

    A captain that takes the action of `evorl.mdp.decision_arrays.rule_actions` leaves its team to the rule players.
    """

    def __init__(self, world: Soccer, slots: int, episodes: Episodes, body: Body | None = None) -> None:
        """``body``: where games are computed, in place of the world's own."""
        both = world.opponent == "self"
        super().__init__(world.spec, slots, world.sides, both, episodes, world.learner_teams, world.see_side)
        self.world = world
        self.body = Body.of(world.device) if body is None else body
        n = world.team_size
        teams = [team for team in (world.left, world.right) for _ in range(n)]
        self._speed, self._kick = (
            None if all(x == 1 for x in factors) else self.body.array(np.array(factors, np.float32))
            for factors in ([team.speed for team in teams], [team.kick for team in teams])
        )  # of each player, [N]
        self._turn = self.body.array(np.array([1.0] * n + [-1.0] * n, np.float32))
        self._view = View(world, self.body.xp, self._turn)
        self._rule = RulePlayers(world, self.body.xp, self._turn, world.strength)
        self.games = self.body.games(new_games(world, self.keys))
        width = 3 if world.continuous else 2
        self._actions = np.zeros((self.count, 2, n, width), action_format(self.spec.action)[0])
        self._start()

    def _begin(self, which: Array) -> None:
        chosen = np.zeros(self.count, np.bool_)
        chosen[which] = True
        fresh = self.body.games(new_games(self.world, self.keys))
        self.games = chosen_games(self.body.xp, self.games, fresh, self.body.array(chosen))

    def _advance(self, actions: Array) -> tuple[Array, Array, Array]:
        before = self._potentials()
        outcome = advance(self.world, self.body.xp, self.games, self._commands(actions))
        self.games = outcome.games
        goal, over = self.body.numpy(outcome.goal), self.body.numpy(outcome.over)
        if goal.any():
            team = (goal > 0).astype(np.int64)
            places = kick_off_places(self.world, self.keys, self.body.numpy(self.games.score).sum(0), team)
            self.games = kick_off(self.world, self.body.xp, self.games, outcome.goal, self.body.array(places))
        return self._rewards(outcome, goal, over, before), over, np.zeros_like(over)

    def _commands(self, actions: Array) -> Commands:
        """The commands of all players, as their teams carry them out."""
        move, kick, tackle = self._wanted(actions)
        return Commands(
            move if self._speed is None else move * self._speed,
            kick if self._kick is None else kick * self._kick,
            tackle,
        )

    def _wanted(self, actions: Array) -> Commands:
        """What all players want: the learner's, and the rule players."""
        world, xp, n = self.world, self.body.xp, self.world.team_size
        decides = np.ones((self.count, 2), np.bool_)  # the learner, for this team
        if self.both:
            self._actions[:] = actions.reshape(self._actions.shape)
            left: Array = np.isnan(self._actions) if world.continuous else self._actions < 0
            decides[:] = ~left.any((2, 3))
        else:
            self._actions[np.arange(self.count), self.team] = actions.reshape(self.count, n, -1)
            decides[np.arange(self.count), 1 - self.team] = False
        self._actions[~decides] = 0
        decided = self.body.array(self._actions.reshape(self.count, 2 * n, -1))
        learner = commands(world, xp, decided, world.continuous, self._turn)
        if decides.all():
            return learner
        error = self._rule.errors(self.keys, self.body.numpy(self.games.time))
        rule = self._rule.commands(self.games, self.body.array(error))
        mine = self.body.array(decides.repeat(n, 1))
        return Commands(*(xp.where(mine, ours, theirs) for ours, theirs in zip(learner, rule, strict=True)))

    def _rewards(self, outcome: Outcome, goal: Array, over: Array, before: Mapping[str, Array]) -> Array:
        """The rewards of team 0, [G, R]; ``before``: its potentials before the step."""
        reward, games = self.world.reward, outcome.games
        values: dict[str, Array] = {"goal": goal}
        if reward.possession:
            first = 1 - 2 * self.body.numpy(games.touched)
            values["possession"] = first * (self.body.numpy(games.mode) == PLAY) * self.world.dt
        for name, now in self._potentials().items():
            values[name] = reward.gamma * np.where(over, 0.0, now) - before[name]
        columns: Array = np.stack([getattr(reward, name) * values[name] for name in self.spec.rewards], 1)
        return columns

    def _potentials(self) -> dict[str, Array]:
        """Those of team 0 that are rewarded, each [G]."""
        reward, half = self.world.reward, self.world.field.length / 2
        if not reward.progress and not reward.approach:
            return {}
        ball, found = self.body.numpy(self.games.ball).astype(np.float64), dict[str, Array]()
        if reward.progress:
            own, other = (np.sqrt((ball[0] - x) ** 2 + ball[1] ** 2) for x in (-half, half))
            found["progress"] = (own - other) / (2 * half)
        if reward.approach:
            way = self.body.numpy(self.games.at) - ball[:, :, None]
            nearest = np.sqrt((way * way).sum(0)).reshape(self.count, 2, -1).min(2)  # of each team, [G, 2]
            found["approach"] = (nearest[:, 1] - nearest[:, 0]) / half
        return found

    def _seen(self) -> Array:
        if self.world.control == "team":
            return self.body.numpy(self._view.of_captains(self.games))[:, :, None]
        seen = self.body.numpy(self._view.of_players(self.games))
        return seen.reshape(self.count, 2, self.world.team_size, -1)

    def _results(self, game: int) -> tuple[dict[str, float], dict[str, float]]:
        first, second = self.body.numpy(self.games.score)[:, game].tolist()
        return result(first, second), result(second, first)

    def render(self, slot: int = 0) -> Array:
        return draw_game(self.world, [self.body.numpy(x) for x in self.games], slot // self.sides)

    def _state(self) -> StateDict:
        return {name: self.body.numpy(x).copy() for name, x in self.games._asdict().items()}

    def _load(self, state: StateDict) -> None:
        if state["at"].shape != tuple(self.games.at.shape):
            raise ValueError(f"the state has players of shape {state['at'].shape}, this arena {self.games.at.shape}")
        self.games = self.body.games(Games(**{name: np.array(state[name]) for name in Games._fields}))


class Body:
    """The arrays that games are computed with: NumPy's, or torch's on a device."""

    def __init__(self, xp: ModuleType, device: str) -> None:
        self.xp, self.device = xp, device

    @classmethod
    def of(cls, device: str, torch: bool = False) -> Body:
        """NumPy for "cpu", unless ``torch``; torch for "cuda"."""
        return cls(import_module(f"array_api_compat.{'numpy' if device == 'cpu' and not torch else 'torch'}"), device)

    def array(self, values: Array) -> Tensor:
        return self.xp.asarray(values, device=self.device)

    def numpy(self, values: Tensor) -> Array:
        array: Array = values if isinstance(values, np.ndarray) else values.cpu().numpy()
        return array

    def games(self, games: Games) -> Games:
        return Games(*map(self.array, games))


def result(own: int, other: int) -> dict[str, float]:
    """The results of a team that scored ``own`` goals."""
    return {
        "score": float(own - other),
        "goals": float(own),
        "win": 0.5 + 0.5 * ((own > other) - (own < other)),
        "fitness": (own + 1) / (own + other + 2),
    }
