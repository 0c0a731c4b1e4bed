"""What an arena of battles knows of each game and each slot."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from evorl.mdp.core import Array, Battle


@dataclass
class Game:
    """One battle at a time: its slots, and the number of the current episode."""

    index: int
    slots: range
    number: int = 0
    failures: int = 0  # of the current episode
    pause: float = 0  # seconds before it starts again
    battle: Battle | None = None


@dataclass(slots=True)
class SlotState:
    """State of one slot."""

    answer: asyncio.Future[Array]
    waits: bool = False  # has published a state, and no action has arrived
    shown: bool = False  # has published a state in the current attempt at the episode
    broken: bool = False  # the last attempt failed after a state was published, which is not reported yet
    cost: int = 0
    result: dict[str, float] | None = None
    log: bytearray = field(default_factory=bytearray)  # the episode's actions so far
    replay: list[Array] = field(default_factory=list)  # actions to replay, in reverse order
    loaded: Array | None = None  # all of them, while the arena loads a state of the present episode
