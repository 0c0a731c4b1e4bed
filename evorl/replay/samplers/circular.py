"""A circular buffer: each batch of new rollouts is learned from several times, and then makes room for the next one.

Luo et al. 2019, arXiv 1912.00167, section 3.2. It holds N batches and goes round them: a gradient step takes the next
batch, and after K gradient steps on a batch the oldest rollouts that wait replace it. So each new rollout is learned
from K times, and the steps on it lie N apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evorl.replay.rollouts import Numbers
from evorl.replay.samplers.core import Memory
from evorl.replay.samplers.queue import Queue, QueueKeys
from evorl.util.types import Count, StateDict


@dataclass(frozen=True, kw_only=True)
class CircularKeys(QueueKeys):
    batches: Count = 4
    """Batches in the buffer, the paper's N."""
    passes: Count = 2
    """Gradient steps on each batch, the paper's K."""

    def rows(self, size: int, fragment: int) -> int:
        return self.batches * size + super().rows(size, fragment)


class Circular(Queue):
    """Each new rollout several times, in a buffer that a gradient step goes one batch further in (IMPACT)."""

    name = "circular"

    def __init__(self, keys: CircularKeys, rows: int, size: int) -> None:
        super().__init__(keys, rows, size)
        self.room, self.passes = rows - keys.batches * size, keys.passes
        self.entries = np.full(keys.batches * size, -1)  # numbers of the rollouts in the buffer
        self.left = np.zeros(keys.batches * size, np.int64)  # gradient steps on them still to come
        self.next = 0  # entry that the next batch begins at
        # the first batches get 1 to K passes in turn, so that not all are replaced at once later
        number = np.arange(keys.batches * size) // size
        self.first_passes = 1 + number * max(keys.passes // keys.batches, 1) % keys.passes

    def ready(self, size: int) -> bool:
        return self.waiting >= int(self._spent(self._batch(size)).sum())

    def draw(self, memory: Memory, key: int, steps: range, size: int) -> Numbers:
        """Give the next batches, of rollouts that wait where their own are spent. Raises ValueError if too few wait."""
        return np.stack([self._next_batch(size) for _ in steps])

    def _next_batch(self, size: int) -> Numbers:
        batch = self._batch(size)
        spent = batch[self._spent(batch)]
        numbers = self._take(len(spent))
        self.left[spent] = np.where(self.entries[spent] < 0, self.first_passes[spent], self.passes)
        self.entries[spent] = numbers
        self.left[batch] -= 1
        self.next = (self.next + size) % len(self.entries)
        return self.entries[batch]

    def _batch(self, size: int) -> Numbers:
        """The next entries [size]."""
        return (self.next + np.arange(size)) % len(self.entries)

    def _spent(self, batch: Numbers) -> NDArray[np.bool_]:
        """Which of these entries need another rollout; also those whose rollout has left the ring."""
        spent: NDArray[np.bool_] = (self.left[batch] == 0) | (self.entries[batch] < self.count - self.rows)
        return spent

    def state_dict(self) -> StateDict:
        own = {"entries": self.entries.copy(), "left": self.left.copy(), "next": self.next}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        if len(state["entries"]) == len(self.entries):
            self.entries[:], self.left[:], self.next = state["entries"], state["left"], state["next"]
