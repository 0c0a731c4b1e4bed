"""Atari games from images, as a world and among gymnasium's environments.

Importing this registers ``evorl/Atari-v0``: ``gymnasium.make("evorl.mdp.atari:evorl/Atari-v0", game="breakout")``
makes it anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated

import gymnasium
from msgspec import Meta

from evorl.mdp.gymnasium.world import Gymnasium, Scalar
from evorl.util.errors import BadRequest, nearest
from evorl.util.typed import typed
from evorl.util.types import Count, Fraction

ID = "evorl/Atari-v0"

if ID not in gymnasium.registry:
    gymnasium.register(ID, "evorl.mdp.atari.game:Game")


@dataclass(frozen=True, kw_only=True)
class Keywords:
    """What `evorl.mdp.atari.game.Game` takes for the game itself."""

    game: str
    sticky: Fraction = 0.25
    size: Annotated[int, Meta(ge=36)] = 84
    """The network has no pixel left of a smaller picture."""


@dataclass(frozen=True, kw_only=True)
class Atari(Gymnasium):
    """An Atari game; `evorl.mdp.atari.game` tells what is seen and done. Needs the extra atari."""

    id: str = ID
    kwargs: dict[str, Scalar] = field(default_factory=lambda: {"game": "pong", "sticky": 0.25, "size": 84})
    """Of the environment: which game, how often it does not heed an action, and the width of its pictures."""
    reward_clip: tuple[float, float] | None = (-1.0, 1.0)
    """As Mnih et al. 2015 have it, so that one learning rate suits all games."""
    budget: Count = 10_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.id == ID:
            game = typed(self.kwargs, Keywords, "kwargs").game
            known = games()
            if known and game not in known:
                raise BadRequest(f"ale-py has no game {game}{nearest(game, known)}", "kwargs.game")


def games() -> list[str]:
    """The games of ale-py by name; none where it is missing, which is told when one is to be made."""
    if find_spec("ale_py") is None:
        return []
    from ale_py.roms import get_all_rom_ids

    return list(get_all_rom_ids())
