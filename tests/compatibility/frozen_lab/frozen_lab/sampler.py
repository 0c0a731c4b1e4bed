"""FrozenLab: what is replayed is drawn evenly from the newest items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from evorl.replay.rollouts import Numbers
from evorl.replay.samplers.core import BufferKeys, Memory, Sampler
from evorl.util.types import Fraction


@dataclass(frozen=True, kw_only=True)
class Options(BufferKeys):
    """The keys rl.replay.own.frozen_lab; of rollouts, ``capacity`` says how many are held."""

    share: Fraction = 0.5
    """Share of the items that are new enough."""


class FrozenLab(Sampler):
    """Evenly, with replacement, from the newest share."""

    name = "frozen_lab"
    options = Options

    def draw(self, memory: Memory, key: int, steps: range, size: int) -> Numbers:
        newest = max(int(self.keys.share * memory.held), 1)
        back = [memory.random(key, step).integers(newest, size=size) for step in steps]
        return memory.low + memory.held - 1 - np.array(back)
