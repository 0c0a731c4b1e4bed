"""Attentive sampling: the rollouts most like the state that the policy is in now (Sun et al. 2020, AAAI).

As elite sampling, with another distance: between the present network's features of a rollout's states and those of the
last state of the newest rollout that a decision was made in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.replay.parts.core import Encode
from evorl.replay.parts.elite import Elite, EliteKeys, Strategy
from evorl.replay.rollouts import Array, Columns, Numbers


@dataclass(frozen=True, kw_only=True)
class AttentiveKeys(EliteKeys):
    strategy: Strategy = 1

    def part(self, size: int, fragment: int, like: Columns) -> Attentive:
        return Attentive(self, like)


class Attentive(Elite):
    name = "attentive"

    def distances(self, places: Numbers, encode: Encode) -> Array:
        newest = self.number[: self.held].argmax()
        features = encode(self.rollouts.take(np.append(places, newest)))
        now = np.broadcast_to(features[-1:, -1:], features[:-1].shape)
        return self.distance(features[:-1], now)
