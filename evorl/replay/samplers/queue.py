"""First in, first out: each new rollout is learned from once, as the learner of IMPALA does (Espeholt et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evorl.replay.rollouts import Numbers
from evorl.replay.samplers.core import Memory, RolloutKeys, Sampler
from evorl.util.types import Count, StateDict


@dataclass(frozen=True, kw_only=True)
class QueueKeys(RolloutKeys):
    capacity: Count | None = None
    """Rollouts that may wait; null: a fragment and what a gradient step takes. The oldest ones leave a full queue."""

    def rows(self, size: int, fragment: int) -> int:
        return self.capacity or fragment + size


class Queue(Sampler):
    """Each new rollout once, in the order of arrival."""

    name = "queue"

    def __init__(self, keys: QueueKeys, rows: int, size: int) -> None:
        self.rows = self.room = rows  # rollouts that may wait
        self.count = 0  # rollouts that arrived so far
        self.taken = 0  # number of the oldest rollout that waits
        self.dropped = 0  # rollouts that were never learned from

    @property
    def waiting(self) -> int:
        return self.count - self.taken

    def arrived(self, memory: Memory, places: Numbers) -> None:
        self.count = memory.count
        late = max(self.waiting - self.room, 0)
        self.taken, self.dropped = self.taken + late, self.dropped + late

    def ready(self, size: int) -> bool:
        """Whether so many rollouts may be sampled now."""
        return self.waiting >= size

    def draw(self, memory: Memory, key: int, steps: range, size: int) -> Numbers:
        """Take the oldest rollouts out. Raises ValueError if fewer wait."""
        return self._take(len(steps) * size).reshape(len(steps), size)

    def _take(self, size: int) -> Numbers:
        """The numbers of the oldest rollouts that wait, which do not wait any more."""
        if size > self.waiting:
            raise ValueError(f"{size} rollouts asked of a queue of {self.waiting}")
        self.taken += size
        return self.taken - size + np.arange(size)

    def metrics(self, step: int) -> dict[str, float]:
        return {"replay/waiting": float(self.waiting), "replay/dropped": float(self.dropped)}

    def state_dict(self) -> StateDict:
        return {"taken": self.taken, "dropped": self.dropped}

    def load_state_dict(self, state: StateDict) -> None:
        self.count, self.taken, self.dropped = state["count"], state["taken"], state["dropped"]
