"""The config of soccer, and its lockstep arena. Rules: `evorl.mdp.soccer.rules`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from evorl.mdp.core import Arena, Array, Input, Spec, World
from evorl.mdp.labels import Binding
from evorl.mdp.soccer.arena import SoccerArena
from evorl.mdp.soccer.keys import action_names, bindings
from evorl.mdp.soccer.parameters import Rules
from evorl.mdp.soccer.players import action_space, captain_names, player_names, player_size, team_size
from evorl.mdp.soccer.rule_player import Strength
from evorl.mdp.team_games import Side, learner_teams, with_side
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes
from evorl.util.types import Count

SIDE = 2**32 + 1  # the draw that chooses the learner's team


@dataclass(frozen=True, kw_only=True)
class Soccer(Rules, World):
    """Soccer in the plane. A step is one decision of every player."""

    opponent: Strength | Literal["self"] = "middle"
    """Strength of the rule players of the other team; self: the learner plays both teams."""
    rule: Strength | None = None
    """With opponent=self: strength of the rule players in evaluations and of ``opponents.rule``; null: middle."""
    side: Side = "random"
    """The learner's team; random: drawn per episode."""
    control: Literal["team", "player"] = "team"
    """Who decides: a captain for the whole team, or every player for itself, with one policy."""
    see_side: bool = False
    """Whether one who decides observes its team, so that one policy can play two unlike teams."""
    continuous: bool = False
    """Moves in any direction and kicks of any speed, in place of a choice of eight and two."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where games are computed: with NumPy, or with torch on the GPU."""
    budget: Count = 10_000_000

    def __post_init__(self) -> None:
        Rules.__post_init__(self)
        if self.opponent == "self" and self.side != "random":
            raise BadRequest(f"{self.side} contradicts opponent=self, which plays both teams", "side")
        if self.opponent != "self" and self.rule is not None:
            raise BadRequest(
                f"{self.rule} says nothing with opponent={self.opponent}; mdp.opponent=self reads it", "rule"
            )

    def ready(self) -> None:
        if self.device == "cuda":
            import torch

            if not torch.cuda.is_available():
                raise BadRequest("cuda, but torch sees no GPU here", "device")

    @property
    def spec(self) -> Spec:
        """The interface of a captain, or of a player."""
        n, captain = self.team_size, self.control == "team"
        size = team_size(n) if captain else player_size(n)
        action = action_space(n if captain else 1, self.continuous)
        spec = Spec((Input("game", (size,)),), action, self.reward.names, players=2 if captain else 2 * n)
        return with_side(spec) if self.see_side else spec

    @property
    def sides(self) -> int:
        """The captains or players that the learner decides for."""
        return 2 * self.team_sides if self.opponent == "self" else self.team_sides

    @property
    def team_sides(self) -> int:
        return 1 if self.control == "team" else self.team_size

    @property
    def seconds_per_step(self) -> float:
        return self.dt

    @property
    def side_names(self) -> tuple[str, ...]:
        if self.control == "team":
            return ("left (blue)", "right (red)")
        return tuple(f"{team} {k + 1}" for team in ("blue", "red") for k in range(self.team_size))

    @property
    def feature_names(self) -> Mapping[str, tuple[str, ...]]:
        names = (captain_names if self.control == "team" else player_names)(self.team_size)
        return {"game": (*names, "side") if self.see_side else names}

    @property
    def action_names(self) -> tuple[tuple[str, ...], ...]:
        return action_names(self.team_size // self.team_sides, self.continuous)

    def bindings(self, side: int) -> tuple[Binding, ...]:
        return bindings(self.team_size // self.team_sides, side // self.team_sides, self.continuous)

    @property
    def longest_episode(self) -> int:
        return self.steps

    def capped(self, steps: int) -> Soccer:
        return replace(self, seconds=min(self.seconds, steps * self.dt))

    def evaluation_world(self) -> Soccer:
        """Evaluate a policy that was trained on both teams against the rule players."""
        return replace(self, opponent=self.strength, rule=None)

    def all_sides(self) -> Soccer:
        return replace(self, opponent="self", rule=self.strength, side="random")

    def one_side(self, side: int) -> Soccer:
        return replace(self, opponent=self.strength, rule=None, side="right" if side else "left")

    @property
    def strength(self) -> Strength:
        """Of the rule players, wherever they play."""
        return self.rule or "middle" if self.opponent == "self" else self.opponent

    @property
    def takes_rule_action(self) -> bool:
        return True

    def players(self, seed: int) -> tuple[int, ...]:
        if self.opponent == "self":
            return tuple(range(self.sides))
        team = int(self.learner_teams(np.array([seed], np.uint64))[0])
        return tuple(range(team * self.sides, (team + 1) * self.sides))

    def learner_teams(self, keys: Array) -> Array:
        """The learner's team in the episodes with these keys, int64 [G]; 0 where it plays both."""
        return learner_teams(keys, self.side, self.opponent == "self", SIDE)

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        """Raises `BadRequest` for a number of slots that is no multiple of the sides."""
        if slots % self.sides:
            near = max(self.sides, round(slots / self.sides) * self.sides)
            raise BadRequest(f"a game has {self.sides} slots: take a multiple of that, such as {near}", "rl.slots")
        return SoccerArena(self, slots, episodes)
