"""The episodes that ended while a batch was collected: whole games, in an order for windows of the last ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from evorl.rl.core import Episode
from evorl.util.types import StateDict


class EndedGames:
    """Ended episodes of slots whose games have ``sides`` sides each, as slots g*sides .. (g+1)*sides-1 of game g.

    A mean over the last N episodes is a mean of the policy only if the choice of the last N does not depend on the side
    or the length of an episode. So the sides of a game leave together, once all of them have ended. Games are ordered
    by the clock of their slowest side: its decisions in the batch. That side takes a whole batch of them, so a part of
    the clock has all games that ended in it, short and long ones. The clock of another side stops early, and what ends
    after that would crowd at the end.
    """

    def __init__(self, sides: int) -> None:
        self.sides = sides
        self._waiting: dict[int, deque[tuple[int, Episode]]] = {}  # by slot: games of which a side goes on

    def add(self, clock: int, slot: int, episode: Episode) -> None:
        """Add a slot's next episode, which ended after ``clock`` decisions of this batch."""
        self._waiting.setdefault(slot, deque()).append((clock, episode))

    def take(self) -> list[Episode]:
        """Return the episodes of the games that have ended since the last call, the sides of each next to each other.

        It ends the batch: what waits for its other sides is the first of the next one.
        """
        games: list[tuple[int, int, list[Episode]]] = []
        for first in sorted({slot - slot % self.sides for slot in self._waiting}):
            sides = [self._waiting.get(slot, deque()) for slot in range(first, first + self.sides)]
            for _ in range(min(map(len, sides))):
                ended = [side.popleft() for side in sides]
                games.append((min(clock for clock, _ in ended), first, [episode for _, episode in ended]))
        self._waiting = {
            slot: deque((0, episode) for _, episode in left) for slot, left in self._waiting.items() if left
        }
        return [episode for *_, game in sorted(games, key=itemgetter(0, 1)) for episode in game]

    def state_dict(self) -> StateDict:
        """Return the episodes that wait for other sides of their games, as between two batches."""
        return {str(slot): [list(episode) for _, episode in left] for slot, left in self._waiting.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._waiting = {
            int(slot): deque((0, _episode(*episode)) for episode in episodes) for slot, episodes in state.items()
        }


def _episode(ret: float, length: float, rewards: list[float], results: dict[str, float]) -> Episode:
    return Episode(ret, length, tuple(rewards), results)
