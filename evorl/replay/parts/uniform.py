"""Uniform sampling with replacement from the newest rollouts (Espeholt et al. 2018, section 5.2.2)."""

from __future__ import annotations

from dataclasses import dataclass

from evorl.replay.parts.core import BufferKeys, Encode, Part
from evorl.replay.rollouts import Columns, Numbers
from evorl.replay.uniform import uniform
from evorl.util.types import Fraction


@dataclass(frozen=True, kw_only=True)
class UniformKeys(BufferKeys):
    share: Fraction = 0.5

    def part(self, size: int, fragment: int, like: Columns) -> Uniform:
        return Uniform(self.capacity, like)


class Uniform(Part):
    name = "uniform"

    def sample(self, size: int, step: int, key: int, encode: Encode) -> Numbers:
        return self.sampled(uniform(key, step, 1, size, 0, self.held)[0])
