"""The config of Atari games from images, and their registration with gymnasium.

``gymnasium.make("evorl.mdp.atari:evorl/Atari-v0", game="breakout")`` makes one anywhere.
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
    """Keyword arguments of `evorl.mdp.atari.game.Game`."""

    game: str
    sticky: Fraction = 0.25
    size: Annotated[int, Meta(ge=36)] = 84
    """Height and width in pixels. The network's convolutions need at least 36."""


@dataclass(frozen=True, kw_only=True)
class Atari(Gymnasium):
    """An Atari game; see `evorl.mdp.atari.game` for observations and actions. Needs the extra atari."""

    id: str = ID
    kwargs: dict[str, Scalar] = field(default_factory=lambda: {"game": "pong", "sticky": 0.25, "size": 84})
    """Keyword arguments of the environment: game, probability of a sticky action, picture size."""
    reward_clip: tuple[float, float] | None = (-1.0, 1.0)
    """As in Mnih et al. 2015, so that one learning rate suits all games."""
    budget: Count = 10_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.id == ID:
            game = typed(self.kwargs, Keywords, "kwargs").game
            known = games()
            if known and game not in known:
                raise BadRequest(f"ale-py has no game {game}{nearest(game, known)}", "kwargs.game")


def games() -> list[str]:
    """Return the names of ale-py's games; empty if ale-py is missing (making the environment then raises)."""
    if find_spec("ale_py") is None:
        return []
    from ale_py.roms import get_all_rom_ids

    return list(get_all_rom_ids())
