"""Worlds written as battles, one coroutine for each side: `BattleWorld` is their base class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from evorl.mdp.battle_arena import BattleArena
from evorl.mdp.core import MDP, Arena, Battle, Spec, World
from evorl.mdp.delay import Delayed
from evorl.mdp.wrapped_world import WrappedWorld
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes
from evorl.util.types import NonNegative


@dataclass(frozen=True, kw_only=True)
class BattleWorld(World):
    """Base class of worlds written as battles: implement `spec` and `reset`, and override `players` if needed."""

    delay_ms: tuple[NonNegative, NonNegative] | None = None
    """Wall time [low, high] in ms that every decision takes; null for none."""

    def __post_init__(self) -> None:
        if self.delay_ms is not None and not 0 <= self.delay_ms[0] <= self.delay_ms[1]:
            raise BadRequest(f"expected [low, high] with 0 <= low <= high, got {list(self.delay_ms)}", "delay_ms")

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """The interface of one side."""

    @abstractmethod
    def reset(self, *players: int, seed: int) -> Battle:
        """Start an episode in which the caller decides for ``players``; the world controls the other sides."""

    def players(self, seed: int) -> tuple[int, ...]:
        """Return the learner's sides in the episode with this key: always the same number; all sides by default."""
        return tuple(range(self.spec.players))

    @property
    def sides(self) -> int:
        return len(self.players(0))

    def all_sides(self) -> World:
        if self.spec.players == 1:
            return super().all_sides()
        if self.sides == self.spec.players:
            return self
        return AllSides(
            world=self, budget=self.budget, frame_skip=self.frame_skip, skip_gamma=self.skip_gamma,
            features=self.features, tell_side=self.tell_side,
        )  # fmt: skip

    def battles(self) -> MDP:
        """The factory of an arena's battles: this world, or one made for the arena, which is closed with it."""
        return self

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        return _arena(self, slots, episodes, self.players)


@dataclass(frozen=True, kw_only=True)
class AllSides(WrappedWorld):
    """The games of a world of battles, with every side decided by the caller."""

    world: BattleWorld

    @property
    def sides(self) -> int:
        return self.world.spec.players

    def all_sides(self) -> World:
        return self

    def one_side(self, side: int) -> World:
        return self.world.one_side(side)

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        return _arena(self.world, slots, episodes, self.players)


def _arena(world: BattleWorld, slots: int, episodes: Episodes, players: Callable[[int], tuple[int, ...]]) -> Arena:
    battles = world.battles()
    mdp = battles if world.delay_ms is None else Delayed(battles, world.delay_ms)
    return BattleArena(mdp, slots, episodes, players, (lambda: None) if battles is world else battles.close)
