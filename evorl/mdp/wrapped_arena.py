"""An arena around another one, which has the mixins of that one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from evorl.mdp.core import (
    Arena,
    Array,
    Closes,
    Decisions,
    EpisodeEndHook,
    FrameHook,
    SavedAtAnyTime,
    StateDict,
    StepLimit,
    StepsTogether,
    StoppableSlots,
)
from evorl.util.seed import Episodes

MIXINS = (EpisodeEndHook, StepLimit, FrameHook, StoppableSlots, StepsTogether, SavedAtAnyTime)
W = TypeVar("W", bound="WrappedArena")
_MADE: dict[tuple[type, ...], type] = {}
"""Classes by their bases."""


def around(kind: type[W], arena: Arena) -> type[W]:
    """The class ``kind`` with the mixins of the arena that it will be around."""
    bases = (kind, *(mixin for mixin in MIXINS if isinstance(arena, mixin) and not issubclass(kind, mixin)))
    if bases not in _MADE:
        _MADE[bases] = type(kind.__name__, bases, {})
    return cast("type[W]", _MADE[bases])


class WrappedArena(Closes):
    """Base class of such arenas. What it does not change is that of the arena within."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.spec, self.slots, self.sides = arena.spec, arena.slots, arena.sides

    def recv(self) -> Decisions:
        return self.arena.recv()

    def send(self, slots: Array, actions: Array) -> None:
        self.arena.send(slots, actions)

    def render(self, slot: int = 0) -> Array | None:
        return self.arena.render(slot)

    def state_dict(self) -> StateDict:
        return self.arena.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self.arena.load_state_dict(state)

    def close(self) -> None:
        self.arena.close()

    # -------------------------------------------------------------- mixins, where the arena within has them

    @property
    def _within(self) -> Any:
        return self.arena

    @property
    def on_episode_end(self) -> Callable[[], None] | None:
        return cast("Callable[[], None] | None", self._within.on_episode_end)

    @on_episode_end.setter
    def on_episode_end(self, hook: Callable[[], None] | None) -> None:
        self._within.on_episode_end = hook

    @property
    def on_frame(self) -> Callable[[], None] | None:
        return cast("Callable[[], None] | None", self._within.on_frame)

    @on_frame.setter
    def on_frame(self, hook: Callable[[], None] | None) -> None:
        self._within.on_frame = hook

    def seconds(self, slot: int = 0) -> float | None:
        return cast("float | None", self._within.seconds(slot))

    @property
    def step_limit(self) -> int | None:
        return cast("int | None", self._within.step_limit)

    @step_limit.setter
    def step_limit(self, limit: int | None) -> None:
        self._within.step_limit = limit

    @property
    def cut(self) -> tuple[tuple[int, int], ...]:
        return cast("tuple[tuple[int, int], ...]", self._within.cut)

    def stop_slot(self, slot: int) -> None:
        self._within.stop_slot(slot)


class EpisodesOfSlots:
    """Which episode each slot of an arena plays, by what the arena has shown. B slots, P of each game."""

    def __init__(self, arena: Arena, episodes: Episodes) -> None:
        self._keys, self._sides = episodes, arena.sides
        self.number = np.zeros(arena.slots, np.int64)
        self._acted = np.zeros(arena.slots, np.bool_)  # since the arena showed the slot last

    def send(self, slots: Array) -> None:
        """Note that these slots act."""
        self._acted[slots] = True

    def ended(self, decisions: Decisions) -> Array:
        """Count and return the slots whose next episodes have begun, int64 [n]."""
        rows = decisions.slots
        over = rows[(decisions.terminated[rows] | decisions.truncated[rows]) & self._acted[rows]]
        self._acted[rows] = False
        self.number[over] += 1
        return over

    def key(self, slot: int) -> int:
        """The key of the slot's present episode."""
        return int(self._keys(slot // self._sides, int(self.number[slot])))

    def state_dict(self) -> StateDict:
        return {"number": self.number.copy(), "acted": self._acted.copy()}

    def load_state_dict(self, state: StateDict) -> None:
        """A slot that has acted and was not shown since goes on with that action."""
        self.number[:], self._acted[:] = state["number"], state["acted"]
