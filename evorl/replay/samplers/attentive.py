"""Attentive sampling (Sun, Zhou & Li 2020, "Attentive Experience Replay", AAAI, doi 10.1609/aaai.v34i04.6049).

Lambda times as many items as needed are drawn. Those with the states most similar to the agent's are chosen. Lambda
falls to 1, where sampling is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.replay.rollouts import Array, Numbers
from evorl.replay.samplers.core import Memory
from evorl.replay.samplers.nearest import Nearest, NearestRollouts, Strategy


@dataclass(frozen=True, kw_only=True)
class AttentiveRollouts(NearestRollouts):
    strategy: Strategy = 1


class Attentive(Nearest):
    """Those most like the state that the agent is in now."""

    name = "attentive"

    def distances(self, memory: Memory, items: Numbers, step: int) -> Array:
        features = memory.features(np.append(items, memory.current(step)))
        present = np.broadcast_to(features[-1:, -1:], features[:-1].shape)
        return self.distance(features[:-1], present)
