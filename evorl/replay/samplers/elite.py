"""Elite sampling: the rollouts that the present policy sees most like the one that acted.

The rule is that of the public platform "elite_buffer_vtrace". Features of a rollout come from the network that acted,
and from the present one when it may be sampled. Their distance says how off-policy it is.
"""

from __future__ import annotations

from evorl.replay.rollouts import Array, Numbers
from evorl.replay.samplers.core import Memory
from evorl.replay.samplers.nearest import Nearest


class Elite(Nearest):
    """Those that the present policy sees most like the one that acted."""

    name = "elite"

    def distances(self, memory: Memory, items: Numbers, step: int) -> Array:
        return self.distance(memory.features(items), memory.acted(items))
