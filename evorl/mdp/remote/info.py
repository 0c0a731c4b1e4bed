"""What a world says of a game in another program, whatever protocol the game speaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from evorl.mdp.core import Spec


class GameInfo(NamedTuple):
    title: str
    spec: Spec
    sides: tuple[str, ...]
    feature_names: Mapping[str, tuple[str, ...]] = {}
    """The names of the numbers of each input that is a row of named numbers."""
    action_names: tuple[tuple[str, ...], ...] = ()
    """The names of the choices of each component, or those of the components of a box; empty: no names."""
    rule: bool = False
    """Whether the game plays sides itself."""
    repeats: bool = False
    """Whether a battle of the same key and actions is the same to the bit."""
    seconds: float = 0.0
    """Of the game's time between two decisions; 0: unknown."""
