"""Observations with a further row ``side``, which says which side observes, in a world whose own do not say it.

A network for each side is chosen by that row, and does not see it (`evorl.nets.per_side`): it is built as it would be
without. One network for all sides sees it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evorl.mdp.core import Arena, Array, Decisions, Input, SideSpec, Spec, StateDict, World
from evorl.mdp.wrapped_arena import EpisodesOfSlots, WrappedArena
from evorl.util.seed import Episodes

NAME = "side"


def with_side(spec: Spec) -> Spec:
    """The interface of a side whose observations have this row."""
    name = NAME
    while any(entry.name == name for entry in spec.inputs):
        name += "_"
    own = SideSpec((*spec.inputs, None), spec.action)
    inputs = (*spec.inputs, Input(name, (spec.players,)))
    return replace(spec, inputs=inputs, who=name, each=(own,) * spec.players)


class ToldSides(WrappedArena):
    """The games of a world, in which each of B slots sees its side of P: 1 in its place, else 0."""

    def __init__(self, arena: Arena, world: World, episodes: Episodes) -> None:
        super().__init__(arena)
        self.spec = with_side(arena.spec)
        self._players, self._episodes = world.players, EpisodesOfSlots(arena, episodes)
        self._side, self._last = np.zeros((2, arena.slots, self.spec.players), np.float32)
        self._shown: tuple[tuple[Array, ...], tuple[Array, ...]] = (), ()  # of the arena within, and with the sides
        self._tell(np.arange(arena.slots))

    def _tell(self, slots: Array) -> None:
        """Write the sides of these slots in their present episodes."""
        self._side[slots] = 0
        for slot in slots.tolist():
            self._side[slot, self._players(self._episodes.key(slot))[slot % self.sides]] = 1

    def recv(self) -> Decisions:
        decisions = self.arena.recv()
        if len(over := self._episodes.ended(decisions)):
            self._last[over] = self._side[over]
            self._tell(over)
        if decisions.inputs is not self._shown[0]:  # readers check what is another tuple than before
            self._shown = decisions.inputs, (*decisions.inputs, self._side)
        return replace(decisions, inputs=self._shown[1], final=(*decisions.final, self._last))

    def send(self, slots: Array, actions: Array) -> None:
        self._episodes.send(slots)
        self.arena.send(slots, actions)

    def state_dict(self) -> StateDict:
        return {"arena": self.arena.state_dict(), "episodes": self._episodes.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        self.arena.load_state_dict(state["arena"])
        self._episodes.load_state_dict(state["episodes"])
        self._tell(np.arange(self.slots))
