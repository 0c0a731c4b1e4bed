"""Atari games from images, as a world and among gymnasium's environments.

Importing this registers ``evorl/Atari-v0``: ``gymnasium.make("evorl.mdp.atari:evorl/Atari-v0", game="breakout")``
makes it anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import gymnasium

from evorl.mdp.gymnasium import Gymnasium, Scalar
from evorl.util.types import Count

ID = "evorl/Atari-v0"

if ID not in gymnasium.registry:
    gymnasium.register(ID, "evorl.mdp.atari_game:Game")


@dataclass(frozen=True, kw_only=True)
class Atari(Gymnasium):
    """An Atari game; `evorl.mdp.atari_game` tells what is seen and done. Needs the extra atari."""

    id: str = ID
    kwargs: dict[str, Scalar] = field(default_factory=lambda: {"game": "pong", "sticky": 0.25, "size": 84})
    """Of the environment: which game, how often it does not heed an action, and the width of its pictures."""
    reward_clip: tuple[float, float] | None = (-1.0, 1.0)
    """As Mnih et al. 2015 have it, so that one learning rate suits all games."""
    budget: Count = 10_000_000
