"""G games of soccer in lockstep, as an arena of B slots: those of the captains or players that the learner decides for.

Letters in shapes: G games, N = 2n players, S sides of a team: 1 for a captain, n for players. P is S, or 2S if the
learner plays both teams. Slot P g + i is side i of its team in game g; with both teams the first S are those of team 0.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from evorl.mdp.core import Array, Decisions, EpisodeEndHook
from evorl.mdp.decision_arrays import action_format, empty_decisions
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
from evorl.util.seed import Episodes
from evorl.util.types import StateDict

if TYPE_CHECKING:
    from evorl.mdp.soccer.world import Soccer


class SoccerArena(EpisodeEndHook):
    """Every `recv` returns all slots, and every `send` needs actions for all. Ends are terminations: the time that is
    left is observed."""

    def __init__(self, world: Soccer, slots: int, episodes: Episodes, body: Body | None = None) -> None:
        """``body``: where games are computed, in place of the world's own."""
        self.world, self.slots, self.sides, self.spec = world, slots, world.sides, world.spec
        self.body = Body.of(world.device) if body is None else body
        self._episodes = episodes
        self._count = slots // self.sides
        n = world.team_size
        self._turn = self.body.array(np.array([1.0] * n + [-1.0] * n, np.float32))
        self._view = View(world, self.body.xp, self._turn)
        self._rule = None
        if world.opponent != "self":
            self._rule = RulePlayers(world, self.body.xp, self._turn, world.opponent)
        self._episode = np.zeros(self._count, np.int64)
        self._keys = episodes(np.arange(self._count), self._episode)
        self.games = self.body.games(new_games(world, self._keys))
        self._potential = np.zeros(self._count)  # of progress, for team 0
        self._team = world.learner_teams(self._keys)  # the learner's, [G]
        self._decisions = empty_decisions(self.spec, slots)
        self._decisions.slots = np.arange(slots)
        self._actions = np.zeros((self._count, 2 * n, 3 if world.continuous else 2), action_format(self.spec.action)[0])
        self._show()

    def recv(self) -> Decisions:
        """Return all slots; the same until `send`."""
        return self._decisions

    def send(self, slots: Array, actions: Array) -> None:
        """Advance every game by one step. Raises ValueError unless ``slots`` is all slots, ascending."""
        if len(slots) != self.slots:
            raise ValueError(f"soccer advances all {self.slots} slots together, got actions for {len(slots)}")
        outcome = advance(self.world, self.body.xp, self.games, self._commands(actions))
        self.games = outcome.games
        goal, over = self.body.numpy(outcome.goal), self.body.numpy(outcome.over)
        self._clear(self._count)
        self._reward(outcome, goal, over)
        if goal.any():
            self._kick_off(outcome.goal)
        if over.any():
            self._restart(over)
        self._show()

    def _commands(self, actions: Array) -> Commands:
        """The commands of all players: of the learner's, and of the rule players."""
        world, xp, n = self.world, self.body.xp, self.world.team_size
        width = self._actions.shape[2]
        if self._rule is None:
            self._actions[:] = actions.reshape(self._actions.shape)
        else:
            teams = self._actions.reshape(self._count, 2, n, width)
            teams[np.arange(self._count), self._team] = actions.reshape(self._count, n, width)
        learner = commands(world, xp, self.body.array(self._actions), world.continuous, self._turn)
        if self._rule is None:
            return learner
        error = self._rule.errors(self._keys, self.body.numpy(self.games.time))
        rule = self._rule.commands(self.games, self.body.array(error))
        mine = self.body.array((self._team[:, None] == 1) == (np.arange(2 * n) >= n))
        return Commands(*(xp.where(mine, ours, theirs) for ours, theirs in zip(learner, rule, strict=True)))

    def _clear(self, cost: int) -> None:
        decisions = self._decisions
        decisions.reward.fill(0)
        decisions.terminated.fill(False)
        decisions.results, decisions.cost = [], cost

    def _reward(self, outcome: Outcome, goal: Array, over: Array) -> None:
        """Write the rewards of a step, each computed for team 0 and turned for team 1."""
        reward, games = self.world.reward, outcome.games
        values: dict[str, Array] = {"goal": goal}
        if reward.possession:
            first = 1 - 2 * self.body.numpy(games.touched)
            values["possession"] = first * (self.body.numpy(games.mode) == PLAY) * self.world.dt
        if reward.progress:
            ball = self.body.numpy(games.ball[0]).astype(np.float64) / (self.world.field.length / 2)
            potential = np.where(over, 0.0, ball)
            values["progress"] = reward.gamma * potential - self._potential
            self._potential = potential
        for column, name in enumerate(self.spec.rewards):
            self._decisions.reward[:, column] = getattr(reward, name) * self._of_slots(values[name])

    def _of_slots(self, values: Array) -> Array:
        """Numbers [G] of team 0, where those of team 1 are the negative: as each slot has them, [B]."""
        sign = 1 - 2 * self._team
        if self._rule is None:
            both: Array = np.stack([values, -values], 1)
            return both.repeat(self.sides // 2, 1).reshape(-1)
        one: Array = values * sign
        return one.repeat(self.sides)

    def _kick_off(self, goal: Tensor) -> None:
        score = self.body.numpy(self.games.score)
        team = (self.body.numpy(goal) > 0).astype(np.int64)
        places = kick_off_places(self.world, self._keys, score.sum(0), team)
        self.games = kick_off(self.world, self.body.xp, self.games, goal, self.body.array(places))

    def _restart(self, over: Array) -> None:
        """End the episodes of these games [G] and start their next ones."""
        self._notify_episode_end()
        which = np.flatnonzero(over)
        rows = (which[:, None] * self.sides + np.arange(self.sides)).reshape(-1)
        self._decisions.terminated[rows] = True
        score = self.body.numpy(self.games.score)
        lead = self._of_slots(score[0] - score[1])[rows].tolist()
        total = score.sum(0).repeat(self.sides)[rows].tolist()
        self._decisions.results = [
            (row, result(ahead, goals)) for row, ahead, goals in zip(rows.tolist(), lead, total, strict=True)
        ]
        self._episode[which] += 1
        self._keys[which] = self._episodes(which, self._episode[which])
        self._team = self.world.learner_teams(self._keys)
        fresh = self.body.games(new_games(self.world, self._keys))
        self.games = chosen_games(self.body.xp, self.games, fresh, self.body.array(over))

    def _show(self) -> None:
        """Write what the slots observe."""
        view, teams = self._view, self._team
        if self.world.control == "team":
            seen = self.body.numpy(view.of_captains(self.games))
            shown = seen if self._rule is None else seen[np.arange(self._count), teams]
        else:
            seen = self.body.numpy(view.of_players(self.games))
            halves = seen.reshape(self._count, 2, self.world.team_size, -1)
            shown = seen if self._rule is None else halves[np.arange(self._count), teams]
        self._decisions.inputs[0][:] = shown.reshape(self.slots, -1)

    def render(self, slot: int = 0) -> Array:
        game = slot // self.sides
        return draw_game(self.world, [self.body.numpy(x) for x in self.games], game)

    def state_dict(self) -> StateDict:
        games = {name: self.body.numpy(x).copy() for name, x in self.games._asdict().items()}
        return {"games": games, "episode": self._episode.copy(), "potential": self._potential.copy()}

    def load_state_dict(self, state: StateDict) -> None:
        """Raises ValueError for another number of slots."""
        if len(state["episode"]) != self._count or state["games"]["at"].shape != tuple(self.games.at.shape):
            raise ValueError(f"the state is of {len(state['episode'])} games, this arena has {self._count}")
        self._episode[:], self._potential = state["episode"], np.array(state["potential"])
        self._keys = self._episodes(np.arange(self._count), self._episode)
        self._team = self.world.learner_teams(self._keys)
        self.games = self.body.games(Games(**{name: np.array(x) for name, x in state["games"].items()}))
        self._clear(cost=0)
        self._show()

    def close(self) -> None:
        """Nothing is held open."""


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


def result(lead: float, goals: float) -> dict[str, float]:
    """The results of a team that leads by ``lead`` of ``goals`` in all."""
    return {
        "score": float(lead),
        "goals": (goals + lead) / 2,
        "win": 0.5 + 0.5 * ((lead > 0) - (lead < 0)),
        "fitness": ((goals + lead) / 2 + 1) / (goals + 2),
    }
