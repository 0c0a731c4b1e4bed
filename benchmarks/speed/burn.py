"""A worker that learns CartPole by PPO on a world whose every step burns CPU time: python burn.py [playing] MS WORD...

With ``playing`` it tells the share of time that playing takes (see `ours.learn`).
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from ours import experiment, learn

from evorl.mdp.core import Arena, Array, World
from evorl.util.seed import Episodes


@dataclass(frozen=True, kw_only=True)
class Burning(World):
    """Another world, made slow."""

    world: World
    ms: float
    """CPU time of one step of one slot."""

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        burning: Any = BurningArena(self.world.arena(slots, episodes), self.ms / 1e3)  # what it lacks is the other's
        arena: Arena = burning
        return arena


class BurningArena:
    def __init__(self, arena: Arena, seconds: float) -> None:
        self._arena, self._seconds = arena, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arena, name)

    def send(self, slots: Array, actions: Array) -> None:
        until = time.thread_time() + len(slots) * self._seconds
        while time.thread_time() < until:
            pass
        self._arena.send(slots, actions)


def main() -> None:
    playing = sys.argv[1] == "playing"
    ms, *words = sys.argv[1 + playing :]
    whole = experiment(words)
    learn(replace(whole, mdp=Burning(world=whole.mdp, ms=float(ms))), playing)


if __name__ == "__main__":
    main()
