"""What every part of a replay of rollouts has: places, a ring by default, and its state.

Letters in shapes: N rollouts, T decisions of a rollout, F numbers of a feature vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evorl.replay.rollouts import Array, Columns, Numbers, Rollouts
from evorl.util.types import AppendedRows, Count, Fraction, StateDict

Encode = Callable[[Columns], Array]
"""The present network's features [N, T, F] of rollouts."""


@dataclass(frozen=True, kw_only=True)
class PartKeys(ABC):
    """Keys of every part."""

    compares: ClassVar[bool] = False
    """Whether the part compares feature vectors."""

    share: Fraction = 0.0
    """Share of each minibatch; 0 leaves the part out."""
    capacity: Count | None = None
    """Rollouts that it holds; null: as many as it needs."""

    @abstractmethod
    def part(self, size: int, fragment: int, like: Columns) -> Part:
        """Make the part, for samples of ``size`` and ``fragment`` rollouts that arrive at once."""


@dataclass(frozen=True, kw_only=True)
class BufferKeys(PartKeys):
    """Keys of a part whose rollouts are sampled again and again."""

    capacity: Count = 1000
    """Rollouts that it holds."""


class Part(ABC):
    """The newest ``capacity`` rollouts of a run. A subclass says how it chooses, or keeps others."""

    name = "part"

    def __init__(self, capacity: int, like: Columns) -> None:
        self.rollouts = Rollouts(like, capacity)
        self.capacity = capacity
        self.count = 0  # rollouts that arrived so far
        self.number = np.zeros(capacity, np.int64)  # of the rollout in each place, in the order of arrival
        self.born = np.zeros(capacity, np.int64)  # gradient steps that had been taken when it arrived
        self.chosen = np.zeros(capacity, np.int64)  # how often it was sampled

    @property
    def held(self) -> int:
        """Rollouts in the part: those in the places below this number."""
        return min(self.count, self.capacity)

    # -------------------------------------------------------------- keeping and choosing

    def insert(self, rollouts: Columns, step: int, key: int, encode: Encode) -> None:
        """Take the next rollouts [N], which arrive after ``step`` gradient steps."""
        self._put(self._next(_length(rollouts)) % self.capacity, rollouts, step)

    @abstractmethod
    def sample(self, size: int, step: int, key: int, encode: Encode) -> Numbers:
        """Return the places [size] of the rollouts for gradient step ``step``: a pure function of key, step and what
        the part holds."""

    def prefetches(self, step: int) -> bool:
        """Whether something can be done ahead of gradient step ``step``. Most parts have nothing."""
        return False

    def prefetch(self, size: int, step: int, key: int, encode: Encode) -> None:
        """Do ahead what `sample` will need at gradient step ``step``, by the network before the step in front of it.
        It runs beside that step, in another thread, where the part `prefetches`."""
        return

    def learned(self, places: Numbers, error: Array) -> None:
        """Learn how wrong the values of sampled rollouts [N] were: errors [N, T]. Most parts do not mind."""
        return

    def metrics(self, step: int) -> dict[str, float]:
        """Numbers about the part's state, by the names of metrics."""
        return {f"replay/size_{self.name}": float(self.held)}

    def sampled(self, places: Numbers) -> Numbers:
        """Note that these places were sampled; return them."""
        np.add.at(self.chosen, places, 1)
        return places

    def _next(self, count: int) -> Numbers:
        """The numbers of so many rollouts that arrive now."""
        return self.count + np.arange(count)

    def _put(self, places: Numbers, rollouts: Columns, step: int) -> None:
        self.rollouts.put(places, rollouts)
        self.number[places], self.born[places], self.chosen[places] = self._next(len(places)), step, 0
        self.count += len(places)

    # -------------------------------------------------------------- state

    append_only = True
    """Whether a rollout stays where it is until the oldest ones leave."""

    def state_dict(self) -> StateDict:
        """Return what the part holds, by number in a ring, and what its choices depend on."""
        held = slice(0, self.held)
        rows = self.appended_rows() or {"rollouts": AppendedRows(0, self.held, self._read).whole()}
        return {
            "count": self.count, **rows, **{name: getattr(self, name)[held].copy() for name in self._tables()},
        }  # fmt: skip

    def appended_rows(self) -> StateDict:
        """Return the part of the state that only grows; empty unless the part is `append_only`."""
        return {"rollouts": AppendedRows(self.count - self.held, self.count, self._read)} if self.append_only else {}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state. A part of rollouts with other shapes, or of another capacity that was full, begins empty."""
        given = state["rollouts"].whole() if isinstance(state["rollouts"], AppendedRows) else state["rollouts"]
        if not given["rows"] or not self.rollouts.fits(given["rows"]):
            return
        size = _length(given["rows"])
        if size != min(state["count"], self.capacity):
            return
        self.count = state["count"]
        self.rollouts.put((given["first"] + np.arange(size)) % self.capacity, given["rows"])
        for name in self._tables():
            getattr(self, name)[:size] = state[name]

    def _tables(self) -> tuple[str, ...]:
        """The names of arrays [capacity] that a state holds."""
        return ("number", "born", "chosen")

    def _read(self, first: int, end: int) -> dict[str, Array]:
        return self.rollouts.take(np.arange(first, end) % self.capacity)


def annealed(candidates: float, step: int, anneal: int) -> float:
    """Lambda at a gradient step: linear from ``candidates`` at step 0 to 1 at step ``anneal``, and 1 from then on."""
    return max(candidates - (candidates - 1) * step / anneal, 1.0)


def draw(generator: np.random.Generator, held: int, size: int) -> Numbers:
    """Draw places [size] below ``held``, each as often as the others or once more: without replacement if possible."""
    whole, rest = divmod(size, held)
    return np.concatenate([np.tile(np.arange(held), whole), generator.choice(held, rest, replace=False)])


def _length(rollouts: Columns) -> int:
    return len(next(iter(rollouts.values())))
