"""The config of Google Research Football (Kurach et al. 2020), as the engine that EnvPool holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Literal

from evorl.mdp.core import Arena, Discrete, Input, Spec, World
from evorl.util import command
from evorl.util.errors import BadRequest, nearest
from evorl.util.seed import Episodes
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
SHAPE = (4, 72, 96)
ACTIONS = 19


@dataclass(frozen=True, kw_only=True)
class Football(World):
    """Google Research Football: one player of the left team, the ball's, is the learner's. Needs the extra football.

    A picture [4, 72, 96] marks the left team, the right team, the ball and the learner's player. A step is a tenth of a
    second. The reward is the change of the goal difference.
    """

    scenario: str = "academy_empty_goal_close"
    """An academy exercise, or a whole game such as 11_vs_11_easy_stochastic."""
    engine: Literal["envpool"] = "envpool"
    """Whose build of the engine."""
    time_limit: Count | None = None
    """Environment steps after which a game is truncated; null: the scenario's own limit."""
    budget: Count = 5_000_000

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            raise BadRequest(f"no scenario {self.scenario}{nearest(self.scenario, SCENARIOS)}", "scenario")

    def ready(self) -> None:
        if find_spec("envpool") is None:
            raise BadRequest(f"{self.scenario} needs more than is installed: {command.install('football')}", "scenario")

    @property
    def spec(self) -> Spec:
        return Spec(inputs=(Input("observation", SHAPE, "uint8"),), action=Discrete(ACTIONS), rewards=("goal",))

    @property
    def seconds_per_step(self) -> float:
        return 0.1

    @property
    def longest_episode(self) -> int:
        own = SCENARIOS[self.scenario]
        return own if self.time_limit is None else min(self.time_limit, own)

    def capped(self, steps: int) -> Football:
        return replace(self, time_limit=min(steps, self.longest_episode))

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        from evorl.mdp.football.arena import FootballArena

        return FootballArena(self, slots, episodes)
