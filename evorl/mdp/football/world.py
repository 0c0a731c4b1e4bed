"""The config of Google Research Football (Kurach et al. 2020), in two builds of its engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Literal

from evorl.mdp.core import Arena, Battle, Discrete, Input, Spec, World
from evorl.mdp.football.engine import ACTIONS
from evorl.mdp.football.frame import FEATURES, SHAPE
from evorl.mdp.team_games import Side
from evorl.util import command
from evorl.util.errors import BadRequest, nearest_or_all
from evorl.util.seed import Episodes, below
from evorl.util.types import Count

SCENARIOS = {
    "academy_empty_goal_close": 400, "academy_empty_goal": 400, "academy_run_to_score": 400,
    "academy_run_to_score_with_keeper": 400, "academy_pass_and_shoot_with_keeper": 400,
    "academy_run_pass_and_shoot_with_keeper": 400, "academy_3_vs_1_with_keeper": 400, "academy_corner": 400,
    "academy_counterattack_easy": 400, "academy_counterattack_hard": 400, "academy_single_goal_versus_lazy": 3000,
    "1_vs_1_easy": 500, "5_vs_5": 3000, "11_vs_11_easy_stochastic": 3000, "11_vs_11_stochastic": 3000,
    "11_vs_11_hard_stochastic": 3000, "11_vs_11_competition": 3000, "11_vs_11_kaggle": 3000,
}  # fmt: skip
"""The steps after which a game of each scenario ends."""
INPUTS = {
    "pictures": Input("observation", SHAPE, "uint8"),
    "simple115": Input("observation", (len(FEATURES),)),
}
BUILD = "the engine is built from source: in a checkout of evorl, make football"
"""What to do where it is missing."""


@dataclass(frozen=True, kw_only=True)
class Football(World):
    """Google Research Football. A side decides for one player of its team: that of the ball, or the one nearest to it.

    A step is a tenth of a second. ``engine=envpool`` (extra football) plays the left team against the built-in player,
    from pictures, for goals. ``engine=gfootball`` has both sides, all observations and all rewards.
    """

    scenario: str = "academy_empty_goal_close"
    """An academy exercise, or a whole game such as 11_vs_11_easy_stochastic."""
    engine: Literal["envpool", "gfootball"] = "envpool"
    """Whose build of the engine: EnvPool's wheel, or gfootball 2.10.2 from source (make football)."""
    observation: Literal["pictures", "simple115"] = "pictures"
    """What a side sees: a picture [4, 72, 96] of own team, other team, ball, own player, or 115 numbers."""
    rewards: tuple[Literal["scoring", "checkpoints"], ...] = ("scoring",)
    """Named rewards. scoring: goals minus goals of the other team; checkpoints: 0.1 for each tenth of the way."""
    opponent: Literal["rule", "self"] = "rule"
    """Who plays the other team: the built-in player, or self: the learner plays both."""
    side: Side = "left"
    """The learner's team; random: drawn per episode."""
    time_limit: Count | None = None
    """Environment steps after which a game is truncated, at most the scenario's own limit; null: that one."""
    budget: Count = 5_000_000

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            raise BadRequest(f"no scenario {self.scenario}{nearest_or_all(self.scenario, SCENARIOS)}", "scenario")
        if self.time_limit is not None and self.time_limit > (own := SCENARIOS[self.scenario]):
            line = f"{self.scenario} ends after {own} steps, so {self.time_limit} does nothing; null is the same"
            raise BadRequest(line, "time_limit")
        if not self.rewards or len(set(self.rewards)) < len(self.rewards):
            raise BadRequest("expected scoring, checkpoints, or both, once each", "rewards")
        if self.opponent == "self" and self.side == "right":
            raise BadRequest("right contradicts opponent=self, which plays both teams", "side")
        if self.engine == "envpool":
            for key, only in ENVPOOL.items():
                if (value := getattr(self, key)) != only:
                    words = ", ".join(value) if isinstance(value, tuple) else value
                    raise BadRequest(f"engine=envpool has no {words}; mdp.engine=gfootball has", key)

    def ready(self) -> None:
        if self.engine == "envpool" and find_spec("envpool") is None:
            raise BadRequest(f"{self.scenario} needs more than is installed: {command.install('football')}", "engine")
        if self.engine == "gfootball" and None in (find_spec("gfootball_engine"), find_spec("gfootball")):
            raise BadRequest(f"gfootball is not installed; {BUILD}", "engine")

    @property
    def title(self) -> str:
        return self.scenario

    @property
    def spec(self) -> Spec:
        players = 1 if self.engine == "envpool" else 2
        return Spec((INPUTS[self.observation],), Discrete(len(ACTIONS)), self.rewards, players=players)

    @property
    def feature_names(self) -> Mapping[str, tuple[str, ...]]:
        return {"observation": FEATURES} if self.observation == "simple115" else {}

    @property
    def action_names(self) -> tuple[tuple[str, ...], ...]:
        return (ACTIONS,)

    @property
    def sides(self) -> int:
        return 2 if self.opponent == "self" else 1

    @property
    def side_names(self) -> tuple[str, ...]:
        return ("left (blue)", "right (red)")

    @property
    def seconds_per_step(self) -> float:
        return 0.1

    @property
    def longest_episode(self) -> int:
        return SCENARIOS[self.scenario] if self.time_limit is None else self.time_limit

    def capped(self, steps: int) -> Football:
        return replace(self, time_limit=min(steps, self.longest_episode))

    def players(self, seed: int) -> tuple[int, ...]:
        if self.opponent == "self":
            return 0, 1
        return (below(seed, 2) if self.side == "random" else int(self.side == "right"),)

    def evaluation_world(self) -> Football:
        """Evaluate a policy that was trained on both teams against the built-in player."""
        return replace(self, opponent="rule", side="random") if self.opponent == "self" else self

    def all_sides(self) -> World:
        return super().all_sides() if self.engine == "envpool" else replace(self, opponent="self", side="left")

    def one_side(self, side: int) -> World:
        return replace(self, opponent="rule", side="right" if side else "left")

    @property
    def takes_rule_action(self) -> bool:
        return self.engine == "gfootball"

    def reset(self, *players: int, seed: int) -> Battle:
        from evorl.mdp.football.battle import FootballBattle

        return FootballBattle(self, players, seed)

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        if self.engine == "gfootball":
            from evorl.mdp.battle_arena import BattleArena

            return BattleArena(self, slots, episodes, self.players)
        from evorl.mdp.football.arena import FootballArena

        return FootballArena(self, slots, episodes)

    def hold(self) -> Callable[[], None]:
        if self.engine != "gfootball":
            return super().hold()
        from evorl.mdp.football.process import POOLS

        return POOLS.use(self.scenario)

    def close(self) -> None:
        if self.engine == "gfootball":
            from evorl.mdp.football.process import POOLS

            POOLS.close(self.scenario)


ENVPOOL = {"observation": "pictures", "rewards": ("scoring",), "opponent": "rule", "side": "left"}
"""What that engine has."""
