"""First in, first out: each new rollout is learned from once, as the learner of IMPALA does (Espeholt et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.replay.parts.core import Encode, Part, PartKeys
from evorl.replay.rollouts import Columns, Numbers
from evorl.util.types import Count, Fraction, StateDict


@dataclass(frozen=True, kw_only=True)
class QueueKeys(PartKeys):
    share: Fraction = 0.5
    """Share of each minibatch: new rollouts, each learned from once; 0 leaves the part out."""
    capacity: Count | None = None
    """Rollouts that may wait; null: a fragment and what a gradient step takes. The oldest ones leave a full queue."""

    def part(self, size: int, fragment: int, like: Columns) -> Queue:
        return Queue(self.capacity or fragment + size, like)


class Queue(Part):
    name = "queue"

    def __init__(self, capacity: int, like: Columns) -> None:
        super().__init__(capacity, like)
        self.room = capacity  # rollouts that may wait
        self.taken = 0  # number of the oldest rollout that waits
        self.dropped = 0  # rollouts that nobody learned from

    @property
    def waiting(self) -> int:
        return self.count - self.taken

    def insert(self, rollouts: Columns, step: int, key: int, encode: Encode) -> None:
        super().insert(rollouts, step, key, encode)
        late = max(self.waiting - self.room, 0)
        self.taken, self.dropped = self.taken + late, self.dropped + late

    def ready(self, size: int) -> bool:
        """Whether so many rollouts may be sampled now."""
        return self.waiting >= size

    def sample(self, size: int, step: int, key: int, encode: Encode) -> Numbers:
        """Take the oldest rollouts out. Raises ValueError if fewer wait."""
        return self.sampled(self._take(size) % self.capacity)

    def _take(self, size: int) -> Numbers:
        """The numbers of the oldest rollouts that wait, which do not wait any more."""
        if size > self.waiting:
            raise ValueError(f"{size} rollouts asked of a queue of {self.waiting}")
        self.taken += size
        return self.taken - size + np.arange(size)

    def metrics(self, step: int) -> dict[str, float]:
        own = {"replay/waiting": float(self.waiting), "replay/dropped": float(self.dropped)}
        return {**super().metrics(step), **own}

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "taken": self.taken, "dropped": self.dropped}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        if self.count:
            self.taken, self.dropped = state["taken"], state["dropped"]
