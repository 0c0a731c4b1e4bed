"""The labels of a world for people: the names of its numbers, and the keys with which they play it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LOWEST, STILL, HIGHEST = range(3)
"""What a person chooses for a component of a continuous action: an end of its range, or what is nearest to 0."""


class Binding(NamedTuple):
    """What a person at the keyboard chooses for a component of an action."""

    keys: tuple[str, ...]
    """Keys that are held, by the names of KeyboardEvent.key in browsers, letters in lower case; none: what is chosen
    without a key."""
    choice: int
    """For a continuous component `LOWEST`, `STILL` or `HIGHEST`."""
    label: str
    component: int = 0


class Labels:
    """The part of a world's config (`evorl.mdp.core.World`) that is for people alone."""

    @property
    def feature_names(self) -> Mapping[str, tuple[str, ...]]:
        """What the numbers of an observation are called, by its name; none for those that have no names."""
        return {}

    @property
    def action_names(self) -> tuple[tuple[str, ...], ...]:
        """What the choices of each component of an action are called, or the components of a Box; empty: no names."""
        return ()

    @property
    def draws(self) -> bool:
        """False for a world that has no pictures: no film is suggested, and one is refused before a game is played."""
        return True

    def bindings(self, side: int) -> tuple[Binding, ...]:
        """The keys with which a person plays this side; empty: digits choose, or pairs of keys."""
        return ()
