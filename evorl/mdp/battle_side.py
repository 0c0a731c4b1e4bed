"""The controller of one side of a battle that keeps the game itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from evorl.mdp.core import Array, State, Step


class Battle(Protocol):
    """A battle in which each side has one action of one component at a time."""

    def state(self, side: int, /) -> State: ...

    async def act(self, side: int, action: int, /) -> Step: ...

    def result(self, side: int, /) -> Mapping[str, float]:
        """The results of the game, also before it is over."""
        ...


class BattleSide:
    """One side of such a battle."""

    def __init__(self, battle: Battle, side: int) -> None:
        self._battle, self._side = battle, side

    @property
    def state(self) -> State:
        return self._battle.state(self._side)

    async def __call__(self, action: Array) -> Step:
        return await self._battle.act(self._side, int(action[0]))

    def result(self) -> Mapping[str, float]:
        return self._battle.result(self._side)

    results_so_far = result
