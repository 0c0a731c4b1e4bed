"""The config of slime volleyball. Rules: `evorl.mdp.volley.rules`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from evorl.mdp.core import Arena, Array, Discrete, Input, Spec, World
from evorl.mdp.labels import Binding
from evorl.mdp.team_games import Side, learner_teams, with_side
from evorl.mdp.volley.arena import VolleyArena
from evorl.mdp.volley.rules import DT, MOVES, Rules
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes
from evorl.util.types import Count

SPEC = Spec((Input("game", (12,)),), Discrete(len(MOVES)), ("point",), players=2)
FEATURES = tuple(f"{whose} {number}" for whose in ("own", "ball", "other") for number in ("x", "y", "vx", "vy"))
ACTIONS = ("stay", "forward", "forward and jump", "jump", "back and jump", "back")


@dataclass(frozen=True, kw_only=True)
class Volley(Rules, World):
    """Slime volleyball; the reward is 1 for a point, -1 for one of the other side."""

    opponent: Literal["rule", "random", "self"] = "rule"
    """Player of the other side. rule: the published baseline; self: the learner plays both."""
    side: Side = "random"
    """The learner's side; random: drawn per episode."""
    see_side: bool = False
    """Whether a side observes which one it is, so that one policy can play two unlike sides."""
    budget: Count = 10_000_000

    def __post_init__(self) -> None:
        if self.opponent == "self" and self.side != "random":
            raise BadRequest(f"{self.side} contradicts opponent=self, which plays both sides", "side")

    @property
    def spec(self) -> Spec:
        """The interface of one side."""
        return with_side(SPEC) if self.see_side else SPEC

    @property
    def sides(self) -> int:
        return 2 if self.opponent == "self" else 1

    @property
    def feature_names(self) -> Mapping[str, tuple[str, ...]]:
        return {"game": (*FEATURES, "side") if self.see_side else FEATURES}

    @property
    def action_names(self) -> tuple[tuple[str, ...], ...]:
        return (ACTIONS,)

    def bindings(self, side: int) -> tuple[Binding, ...]:
        """Arrows as on the screen: the fence is to the right of the left side."""
        ahead, behind = ("ArrowLeft", "ArrowRight") if side else ("ArrowRight", "ArrowLeft")
        held = ((), (ahead,), (ahead, "ArrowUp"), ("ArrowUp",), (behind, "ArrowUp"), (behind,))
        return tuple(Binding(keys, choice, ACTIONS[choice]) for choice, keys in enumerate(held))

    @property
    def seconds_per_step(self) -> float:
        return DT

    @property
    def side_names(self) -> tuple[str, ...]:
        return ("left (orange)", "right (blue)")

    @property
    def longest_episode(self) -> int:
        return self.time_limit

    def capped(self, steps: int) -> Volley:
        return replace(self, time_limit=min(self.time_limit, steps))

    def evaluation_world(self) -> Volley:
        """Evaluate a policy that was trained on both sides against the baseline."""
        return replace(self, opponent="rule") if self.opponent == "self" else self

    def all_sides(self) -> Volley:
        return replace(self, opponent="self", side="random")

    def one_side(self, side: int) -> Volley:
        return replace(self, opponent="rule", side="right" if side else "left")

    @property
    def takes_rule_action(self) -> bool:
        return True

    def players(self, seed: int) -> tuple[int, ...]:
        if self.opponent == "self":
            return (0, 1)
        return (int(self.learner_teams(np.array([seed], np.uint64))[0]),)

    def learner_teams(self, keys: Array) -> Array:
        """The learner's side in the episodes with these keys, int64 [G]; 0 where it plays both."""
        return learner_teams(keys, self.side, self.opponent == "self", 0)

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        """Raises `BadRequest` for an odd number of slots with opponent=self."""
        if slots % self.sides:
            raise BadRequest(f"opponent=self needs an even number of slots, not {slots}", "rl.slots")
        return VolleyArena(self, slots, episodes)
