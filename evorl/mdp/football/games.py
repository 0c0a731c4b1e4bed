"""The games of one slot: an engine of EnvPool, which plays one game after the other.

An engine draws the seed of each game from its own. It plays the same game with the same seed and actions, whatever it
played before, so a game is given by the engine's seed, its number, and its actions. A new engine takes 0.6 s, and the
next game of an engine 0.03 s. So in training an engine plays ``GAMES`` games, and a resumed run begins again at the
first of them. In evaluations each game has an engine of its own, because a film repeats one game without those before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evorl.mdp.core import Array
from evorl.util.seed import Episodes, seed31

GAMES = 64


class Outcome(NamedTuple):
    """What the engine says after a step."""

    reward: float
    over: bool
    late: bool  # the game's last step was played
    score: tuple[int, int]


class SlotGames:
    """The games of a slot, by the keys of its episodes.

    Engines step side by side between `send` and `recv`, and begin games so between `begin` and `begun`.
    """

    def __init__(self, scenario: str, slot: int, episodes: Episodes) -> None:
        self._scenario, self._slot, self._episodes = scenario, slot, episodes
        self._engine: Any = None
        self._first = self._next = 0  # the first game of the engine, and the one that it plays next
        self._number = 0

    def begin(self, number: int) -> None:
        """Begin game ``number`` of the slot, and before it those which its engine has not begun yet."""
        first = number - number % GAMES
        if int(self._episodes(self._slot, number)) & 1:  # an evaluation's
            first = number
        if self._engine is None or first != self._first or number < self._next:
            self.close()
            self._engine = engine(self._scenario, seed31(int(self._episodes(self._slot, first))))
            self._first = self._next = first
        self._number = number
        self._engine.async_reset()

    def begun(self, first: Array) -> bool:
        """Wait for the game, and write its first picture. False if an earlier one has begun: call again."""
        seen, *_ = self._engine.recv()
        self._next += 1
        if self._next <= self._number:
            self._engine.async_reset()
            return False
        first[:] = picture(seen)
        return True

    def send(self, action: int) -> None:
        self._engine.send(np.array([action], np.int32), self._env)

    _env = np.zeros(1, np.int32)

    def recv(self) -> tuple[Array, Outcome]:
        """The picture after the action that was sent, and what happened."""
        seen, reward, terminated, truncated, info = self._engine.recv()
        score = tuple(info["score"][0].tolist())
        return picture(seen), Outcome(float(reward[0]), bool(terminated[0]), bool(truncated[0]), score)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def engine(scenario: str, seed: int) -> Any:
    """One engine with this seed, in a thread of its own."""
    import envpool

    return envpool.make_gymnasium(f"gfootball/{scenario}-v1", num_envs=1, num_threads=1, seed=[seed])


def picture(seen: Array) -> Array:
    """[4, 72, 96] of EnvPool's [1, 72, 96, 4]."""
    return np.moveaxis(seen[0], -1, 0)
