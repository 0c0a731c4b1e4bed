"""The config of Marvin, and its registration with gymnasium.

``gymnasium.make("evorl.mdp.marvin:evorl/Marvin-v0")`` makes it anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium

from evorl.mdp.gymnasium import Gymnasium
from evorl.util.types import Count

ID = "evorl/Marvin-v0"
LEGS = ("rear", "front")
FEATURES = (
    *("angle", "angular velocity", "vx", "vy"),
    *(f"{leg} {part}" for leg in LEGS for part in ("hip", "hip speed", "knee", "knee speed", "touches")),
    *(f"distance {number}" for number in range(10)),
)
LIMIT = 2000  # steps of an episode: a slow walk to the end takes about 1700

if ID not in gymnasium.registry:
    gymnasium.register(ID, "evorl.mdp.marvin.walker:Walker", max_episode_steps=LIMIT)


@dataclass(frozen=True, kw_only=True)
class Marvin(Gymnasium):
    """Marvin's walk; see `evorl.mdp.marvin.walker` for observations, actions and reward. Needs the extra box2d."""

    id: str = ID
    budget: Count = 5_000_000

    @property
    def feature_names(self) -> Mapping[str, tuple[str, ...]]:
        return {"observation": FEATURES}

    @property
    def action_names(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(f"{leg} {joint}" for leg in LEGS for joint in ("hip", "knee")),)
