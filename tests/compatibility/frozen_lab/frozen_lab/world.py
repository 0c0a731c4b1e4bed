"""FrozenLab: walk along a line to a flag, left, right or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Array, Controller, Discrete, Input, Spec, State, Step
from evorl.util.seed import generator
from evorl.util.types import Count


@dataclass(frozen=True, kw_only=True)
class FrozenLab(BattleWorld):
    """The keys of conf/mdp/frozen_lab.yaml, beside those of every such world."""

    length: Count = 10
    """Length of the line."""
    budget: Count = 50_000
    """Environment steps of a run."""

    @property
    def spec(self) -> Spec:
        return Spec(inputs=(Input("where", (2,)),), action=Discrete(3))

    def reset(self, *players: int, seed: int) -> Walk:
        return Walk(self.length, seed)


class Walk:
    """One episode. All randomness comes from its seed, so seed and actions repeat it."""

    def __init__(self, length: int, seed: int) -> None:
        self.me, self.flag = generator("frozen_lab", seed).choice(length, 2, replace=False)
        self.length, self.left = length, 4 * length
        self.controllers: list[Controller] = [self]  # one side: the episode is its own controller

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        pass

    @property
    def state(self) -> State:
        return State((np.array([self.me, self.flag], np.float32) / self.length,))

    async def __call__(self, action: Array) -> Step:
        self.me, self.left = np.clip(self.me + action[0] - 1, 0, self.length), self.left - 1
        won = bool(self.me == self.flag)
        return Step(np.array([won - 0.01], np.float32), terminated=won, truncated=not won and self.left == 0)

    def result(self) -> Mapping[str, float]:
        return {"fitness": float(self.me == self.flag)}
