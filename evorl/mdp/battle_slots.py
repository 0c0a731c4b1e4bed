"""The records that an arena of battles has of each game and each slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evorl.mdp.core import Array, Battle


@dataclass
class Game:
    """One battle at a time: its slots, and the number of the current episode."""

    index: int
    slots: range
    number: int = 0
    ended: bool = False  # that episode is over, and the next one not entered yet
    failures: int = 0  # of the current episode
    replays: int = 0  # that failed while a state was loaded
    pause: float = 0  # seconds before it starts again
    battle: Battle | None = None

    def hook(self, on_frame: Callable[[], None] | None) -> None:
        """Let the battle call this for its pictures between decisions, if it has some."""
        if self.battle is not None and hasattr(self.battle, "on_frame"):
            self.battle.on_frame = on_frame


@dataclass(slots=True)
class SlotState:
    """State of one slot."""

    answer: asyncio.Future[Array]  # has the action of this slot; of a game in moves, the first of any of its slots
    action: Array | None = None  # that has arrived, or is replayed
    waits: bool = False  # has published a state, and no action has arrived
    shown: bool = False  # has published a state in the current attempt at the episode
    broken: bool = False  # the last attempt failed after a state was published, which is not reported yet
    cost: int = 0
    length: int = 0  # environment steps of the current attempt
    result: dict[str, float] | None = None
    log: bytearray = field(default_factory=bytearray)  # the episode's actions so far
    replay: list[Array] = field(default_factory=list)  # actions to replay, in reverse order
    loaded: Array | None = None  # all of them, while the arena loads a state of the present episode
    in_flight: bool = False  # the last of ``loaded`` had no outcome yet when the state was saved

    def actions(self, dtype: Any, width: int) -> Array:
        """Return the episode's actions so far [T, K], with those that are still to be replayed."""
        log = np.frombuffer(bytes(self.log), dtype).reshape(-1, width)
        return np.concatenate([log, *(action[None] for action in reversed(self.replay))])

    def replay_again(self) -> None:
        assert self.loaded is not None
        self.replay = list(self.loaded[::-1].copy())  # a copy: a battle may write into its action
        self.waits = self.waits and self.broken
        self.log.clear()

    def break_off(self) -> None:
        """Forget the attempt at the episode, but not that its last decision failed."""
        self.broken, self.shown, self.loaded = self.broken or self.shown, False, None
        self.replay.clear()
        self.log.clear()
