"""The keys with which a person plays a side of a world (`evorl.mdp.core.World.bindings`)."""

from __future__ import annotations

from typing import NamedTuple


class Binding(NamedTuple):
    """What a person at the keyboard chooses for a component of an action."""

    keys: tuple[str, ...]
    """Keys that are held, by the names of KeyboardEvent.key in browsers; none: what is chosen without a key."""
    choice: int
    label: str
    component: int = 0
