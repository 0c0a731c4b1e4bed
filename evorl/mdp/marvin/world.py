"""The config of Marvin, and its registration with gymnasium.

``gymnasium.make("evorl.mdp.marvin:evorl/Marvin-v0")`` makes it anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium

from evorl.mdp.gymnasium import Gymnasium
from evorl.util.types import Count

ID = "evorl/Marvin-v0"
LIMIT = 2000  # steps of an episode: a slow walk to the end takes about 1700

if ID not in gymnasium.registry:
    gymnasium.register(ID, "evorl.mdp.marvin.walker:Walker", max_episode_steps=LIMIT)


@dataclass(frozen=True, kw_only=True)
class Marvin(Gymnasium):
    """Marvin's walk; see `evorl.mdp.marvin.walker` for observations, actions and reward. Needs the extra box2d."""

    id: str = ID
    budget: Count = 5_000_000
