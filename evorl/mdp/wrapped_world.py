"""A world around another one, of whose games it says what that says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evorl.mdp.core import Array, World
from evorl.mdp.labels import Binding


@dataclass(frozen=True, kw_only=True)
class WrappedWorld(World):
    """Base class of such worlds."""

    world: World

    def hold(self) -> Callable[[], None]:
        return self.world.hold()

    @property
    def title(self) -> str:
        return self.world.title

    @property
    def team_sides(self) -> int:
        return self.world.team_sides

    @property
    def seconds_per_step(self) -> float | None:
        return self.world.seconds_per_step

    @property
    def side_names(self) -> tuple[str, ...]:
        return self.world.side_names

    @property
    def feature_names(self) -> Mapping[str, tuple[str, ...]]:
        return self.world.feature_names

    @property
    def action_names(self) -> tuple[tuple[str, ...], ...]:
        return self.world.action_names

    def bindings(self, side: int) -> tuple[Binding, ...]:
        return self.world.bindings(side)

    def environment_actions(self, side: int = 0) -> Callable[[Array], Array]:
        return self.world.environment_actions(side)

    @property
    def takes_rule_action(self) -> bool:
        return self.world.takes_rule_action

    @property
    def longest_episode(self) -> int | None:
        return self.world.longest_episode

    @property
    def limited(self) -> bool:
        return self.world.limited
