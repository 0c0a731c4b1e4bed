"""Small battle worlds that the tests of arenas share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np

from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Array, Discrete, Input, Spec, State, Step
from evorl.util.seed import generator

Event = Callable[["WalkBattle", int, int], Any]
"""Called with (battle, player, decision number) before an action counts; what it returns is awaited if it can be."""


@dataclass(frozen=True, kw_only=True)
class Walk(BattleWorld):
    """Each side walks on a line for as many decisions as its key says; an odd length is a truncation."""

    sides: int = 1
    longest: int = 9
    same_length: bool = True
    event: Event | None = None
    entered: Event | None = None
    left: list[int] = field(default_factory=list)  # keys of the battles left

    @property
    def spec(self) -> Spec:
        return Spec(
            inputs=(Input("place", (2,)), Input("clock", (), "int64")),
            action=Discrete(3),
            rewards=("speed", "place"),
            players=self.sides,
            masked=True,
        )

    def reset(self, *players: int, seed: int) -> WalkBattle:
        return WalkBattle(self, players, seed)


class WalkBattle:
    def __init__(self, world: Walk, players: Sequence[int], seed: int) -> None:
        self.world, self.seed = world, seed
        self.controllers = [Walker(self, player) for player in players]

    async def __aenter__(self) -> Self:
        await _await(self.world.entered, self, -1, -1)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.world.left.append(self.seed)

    def render(self) -> Array:
        return np.full((2, 2, 3), self.seed % 256, np.uint8)


class Walker:
    def __init__(self, battle: WalkBattle, player: int) -> None:
        self.battle, self.player = battle, player
        draw = generator("walk", battle.seed, 0 if battle.world.same_length else player)
        self.length = int(draw.integers(1, battle.world.longest + 1))
        self.draw = generator("walk", battle.seed, player, "steps")
        self.place = float(self.draw.normal())
        self.clock = 0

    @property
    def state(self) -> State:
        legal = np.array([True, self.clock % 2 == 0, self.clock % 3 == 0])
        return State((np.array([self.place, self.player], np.float32), np.array(self.clock)), legal)

    async def __call__(self, action: Array) -> Step:
        await _await(self.battle.world.event, self.battle, self.player, self.clock)
        legal = self.state.legal
        if legal is None or not legal[action[0]]:
            raise ValueError("an illegal action")
        move = float(action[0]) - 1 + float(self.draw.normal())
        self.place += move
        self.clock += 1
        over, odd = self.clock == self.length, self.length % 2 == 1
        return Step(np.array([move, self.place], np.float32), over and not odd, over and odd, cost=1 + self.clock % 2)

    def result(self) -> Mapping[str, float]:
        return {"fitness": self.place, "length": self.clock}


async def _await(event: Event | None, battle: WalkBattle, player: int, decision: int) -> None:
    if event is not None:
        found = event(battle, player, decision)
        if asyncio.iscoroutine(found) or asyncio.isfuture(found):
            await found
