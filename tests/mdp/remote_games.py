"""Games of other programs for tests: how they are started, and what an arena of them sees."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from evorl.mdp.core import Arena
from evorl.mdp.random_play import random_action
from evorl.mdp.remote import Remote
from evorl.util.seed import Episodes, generator

TAG = "{python} {clients}/python/tag.py"
FAULTY = f"{sys.executable} {Path(__file__).parent}/faulty_tag.py"
EPISODES = Episodes(0, "remote")


@contextmanager
def opened(slots: int = 8, command: str | None = TAG, **keys: Any) -> Iterator[Arena]:
    """An arena of a world, which is closed with it."""
    world = Remote(command=command, **{"deadline_s": 20.0, "start_s": 20.0, **keys})
    try:
        arena = world.arena(slots, EPISODES)
        yield arena
        arena.close()
    finally:
        world.close()


class Records:
    """What each slot of an arena sees and gets, under random actions that depend on slot and decision alone."""

    def __init__(self, arena: Arena) -> None:
        self.arena, self.rows = arena, [list[tuple[Any, ...]]() for _ in range(arena.slots)]
        self.failed = 0
        self.together = list[list[int]]()  # the slots of each `recv`
        self.waiting: set[int] = set()

    def play(self, decisions: int, event: Callable[[int], None] = lambda number: None) -> Records:
        """Play until each slot has had so many decisions; ``event`` is called before every `recv`, with its number."""
        number = 0
        while min(map(len, self.rows)) < decisions:
            self.send()
            event(number)
            self.recv()
            number += 1
        return self

    def recv(self) -> None:
        now = self.arena.recv()
        self.together.append(now.slots.tolist())
        results = dict(now.results)
        self.failed += len(now.failed)
        for slot in now.slots.tolist():
            seen = [x[slot].tobytes() for x in now.inputs] + [b"" if now.legal is None else now.legal[slot].tobytes()]
            ends = bool(now.terminated[slot]), bool(now.truncated[slot])
            final = [x[slot].tobytes() for x in now.final] if now.truncated[slot] else []
            result = sorted(results.get(slot, {}).items())
            self.rows[slot].append((seen, now.reward[slot].tolist(), ends, final, result))
        self.now = now
        self.waiting |= set(now.slots.tolist())

    def send(self) -> None:
        if not self.waiting:
            return
        slots, legal = sorted(self.waiting), self.now.legal
        draws = [generator("records", slot, len(self.rows[slot])) for slot in slots]
        actions = [
            random_action(self.arena.spec, None if legal is None else legal[slot], draw)
            for slot, draw in zip(slots, draws, strict=True)
        ]
        self.arena.send(np.array(slots), np.stack(actions))
        self.waiting.clear()

    def first(self, decisions: int) -> list[list[tuple[Any, ...]]]:
        return [rows[:decisions] for rows in self.rows]
