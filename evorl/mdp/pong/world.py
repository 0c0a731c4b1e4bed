"""The config of vector Pong, and its lockstep arena. Rules: `evorl.mdp.pong.rules`.

The learner plays one side against a rule player (it follows the ball and never stops its bat) or a random player, or it
plays both sides. The same games also run as battles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import (
    Arena,
    Array,
    Closes,
    Decisions,
    Discrete,
    EpisodeEndHook,
    Input,
    ResultsSoFar,
    Spec,
    StepsTogether,
)
from evorl.mdp.labels import Binding
from evorl.mdp.pong.battle import PongBattle
from evorl.mdp.pong.drawing import draw_game
from evorl.mdp.pong.match import VIEW, Match, Opponent
from evorl.mdp.pong.rules import DOWN, STAY, UP, Behaviour, Games, Rules, begin, draw_serves
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.saved import restore, saved
from evorl.util.seed import Episodes
from evorl.util.types import Count, StateDict

STEP_S = 1 / 30  # in a film; the game itself has no clock
SPEC = Spec(inputs=(Input("game", (VIEW,)),), action=Discrete(3), rewards=("score",), players=2)
FEATURES = ("own y", "other y", *(f"ball {axis}, {ago} steps ago" for ago in (3, 2, 1, 0) for axis in "xy"))


@dataclass(frozen=True, kw_only=True)
class Pong(Rules, BattleWorld):
    """Pong; the actions are up, stay and down, an episode is ``rounds`` rounds.

    With ``delay_ms`` the games run as battles, else in lockstep; the episodes are the same.
    """

    opponent: Opponent = "rule"
    """Player of the other side; self: the learner plays both, as slots 2g (left) and 2g + 1 (right) of game g."""
    side: Literal["random", "left", "right"] = "random"
    """The learner's side; random: drawn per episode."""
    budget: Count = 26_000_000

    def __post_init__(self) -> None:
        Rules.__post_init__(self)
        BattleWorld.__post_init__(self)
        if self.opponent == "self" and self.side != "random":
            raise BadRequest(f"{self.side} contradicts opponent=self, which plays both sides", "side")

    @property
    def spec(self) -> Spec:
        return SPEC

    @property
    def feature_names(self) -> Mapping[str, tuple[str, ...]]:
        return {"game": FEATURES}

    @property
    def action_names(self) -> tuple[tuple[str, ...], ...]:
        return (("up", "stay", "down"),)

    def bindings(self, side: int) -> tuple[Binding, ...]:
        return (Binding((), STAY, "stay"), Binding(("ArrowUp",), UP, "up"), Binding(("ArrowDown",), DOWN, "down"))

    @property
    def seconds_per_step(self) -> float:
        return STEP_S

    @property
    def side_names(self) -> tuple[str, ...]:
        return ("left (green)", "right (red)")

    def evaluation_world(self) -> Pong:
        """Evaluate a policy that was trained on both sides against the rule player."""
        return replace(self, opponent="rule") if self.opponent == "self" else self

    def all_sides(self) -> Pong:
        return replace(self, opponent="self", side="random")

    def one_side(self, side: int) -> Pong:
        return replace(self, opponent="rule", side="right" if side else "left")

    @property
    def takes_rule_action(self) -> bool:
        return True

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        """Raises `BadRequest` for an odd number of slots with opponent=self."""
        if self.opponent == "self" and slots % 2:
            raise BadRequest(f"opponent=self needs an even number of slots, not {slots}", "rl.slots")
        return PongArena(self, slots, episodes) if self.delay_ms is None else super().arena(slots, episodes)

    def reset(self, *players: int, seed: int) -> PongBattle:
        return PongBattle(self, self.opponent, players, seed)

    def players(self, seed: int) -> tuple[int, ...]:
        return tuple(self.learner_sides(np.array([seed], np.uint64)).tolist())

    def learner_sides(self, keys: Array) -> Array:
        """Return the learner's sides in the episodes with the given keys [n]: int64 [n], or [2n] with opponent=self."""
        if self.opponent == "self":
            return np.tile([0, 1], len(keys))
        if self.side == "random":
            return (seeds.uniform(keys, 0) >= 0.5).astype(np.int64)
        return np.full(len(keys), int(self.side == "right"), np.int64)


class PongArena(EpisodeEndHook, StepsTogether, ResultsSoFar, Closes):
    """B slots in lockstep: every `recv` returns all slots, and every `send` needs actions for all."""

    def __init__(self, world: Pong, slots: int, episodes: Episodes) -> None:
        self.world, self.slots, self.episodes, self.spec = world, slots, episodes, SPEC
        self.sides = world.sides
        self._shaped = world.reward != Behaviour()
        self._episode = np.zeros(slots // self.sides, np.int64)
        keys = episodes(np.arange(len(self._episode)), self._episode)
        self._match = Match(world, world.opponent, keys, np.arange(slots) // self.sides, world.learner_sides(keys))
        view = self._match.players.view
        self._decisions = Decisions(
            slots=np.arange(slots),
            inputs=(view,),
            legal=None,
            reward=np.zeros((slots, 1), np.float32),
            terminated=np.zeros(slots, np.bool_),
            truncated=np.zeros(slots, np.bool_),
            final=(view,),  # never valid: no episode is truncated
        )

    def recv(self) -> Decisions:
        """Return all slots; the same until `send`."""
        return self._decisions

    def send(self, slots: Array, actions: Array) -> None:
        """Advance every game by one step. Raises ValueError unless ``slots`` is all slots, ascending."""
        if len(slots) != self.slots:
            raise ValueError(f"Pong advances all {self.slots} slots together, got actions for {len(slots)}")
        ended, point = self._match.advance(actions[:, 0])
        self._clear(cost=len(self._episode))
        if len(ended):
            self._reward(ended, point)
        if self._shaped:
            self._decisions.reward[:, 0] += self._match.players.behaviour(self.world.reward)
        self._match.players.update_view(self._match.games)

    def _clear(self, cost: int) -> None:
        decisions = self._decisions
        decisions.reward.fill(0)
        decisions.terminated.fill(False)
        decisions.results, decisions.cost = [], cost

    def _reward(self, ended: Array, point: Array) -> None:
        """Write the rewards of games whose round ended."""
        rows = self._rows(ended)
        sign = 1 - 2 * self._match.players.side[rows]
        self._decisions.reward[rows, 0] = point.repeat(self.sides) * sign
        over = ended[self._match.games.round[ended] >= self.world.rounds]
        if len(over):
            self._restart(over)

    def _restart(self, over: Array) -> None:
        """End the episodes of the given games and start their next ones."""
        self._notify_episode_end()
        rows = self._rows(over)
        self._decisions.terminated[rows] = True
        self._decisions.results = list(zip(rows.tolist(), self._match.results(rows), strict=True))
        self._episode[over] += 1
        keys = self.episodes(over, self._episode[over])
        begin(self.world, self._match.games, over, keys)
        self._match.players.begin_episode(rows, self.world.learner_sides(keys), self._match.games)

    def _rows(self, games: Array) -> Array:
        """Return the slots of the given games, in the same order."""
        return (games[:, None] * self.sides + np.arange(self.sides)).reshape(-1)

    def results_so_far(self, slot: int) -> Mapping[str, float]:
        return self._match.results(np.array([slot]))[0]

    def render(self, slot: int = 0) -> Array:
        return draw_game(self.world, self._match.games, slot // self.sides)

    def state_dict(self) -> StateDict:
        games, players = self._match.games, self._match.players
        return {
            "games": saved(games, Games.SAVED),
            "seats": {"side": players.side.copy(), "view": players.view.copy(), "counts": players.counts.copy()},
            "episode": self._episode.copy(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Raises ValueError for another number of slots."""
        games, players, saved = self._match.games, self._match.players, state["seats"]
        if saved["view"].shape != players.view.shape or len(state["episode"]) != len(self._episode):
            raise ValueError(f"the state holds {len(saved['view'])} slots, this arena {self.slots}")
        restore(games, Games.SAVED, state["games"])
        games.serves[...] = draw_serves(self.world, games.key)
        self._episode[...] = state["episode"]
        players.begin_episode(np.arange(self.slots), saved["side"], games)
        players.view[...] = saved["view"]
        players.counts[...] = saved["counts"]
        self._clear(cost=0)

    def close(self) -> None:
        """Nothing is held open."""
