"""What every sampler is: a rule that chooses items of a memory for the minibatches of gradient steps.

An item is a transition, a sequence or a rollout. A sequence is named by its first transition to learn from. Items are
numbered in the order of arrival. A memory has ``rows``, and item n lies in row n % rows, so a row names the item in it
as its number does.

To write a sampler: subclass `Sampler`, give it a dataclass of keys, add it to `evorl.replay.samplers.registry` or to
the entry points of a plugin, and call `check_transitions` or `check_rollouts` of `evorl.replay.samplers.conformance` in
its test.

Letters in shapes: N items, T decisions of an item (1 of a transition), F numbers of a feature vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from evorl.replay.rollouts import Array, Numbers
from evorl.util import seed as seeds
from evorl.util.kinds import NoKeys
from evorl.util.types import Count, StateDict


@dataclass(frozen=True)
class Memory(ABC):
    """What a sampler sees of the memory that it chooses from."""

    rows: int
    count: int
    """Items that have arrived so far."""
    low: int
    """The first item that may be chosen. Those that may be are named ``low`` to ``low + held - 1``."""
    held: int

    @abstractmethod
    def current(self, step: int) -> int:
        """The item with the state that the agent is in at gradient step ``step``."""

    @abstractmethod
    def features(self, items: Numbers) -> Array:
        """Features [N, T, F] of items as the learner computes them at present."""

    def acted(self, items: Numbers) -> Array:
        """The same [N, T, F] as they were when the items were played; by default they never change."""
        return self.features(items)

    def chosen(self, items: Numbers) -> Numbers:
        """How often [N] items were sampled before; 0 where this is not counted."""
        return np.zeros_like(items)

    def random(self, key: int, step: int) -> np.random.Generator:
        """The random numbers of a gradient step."""
        return seeds.generator(key, step)


class Sampler(ABC):
    """A rule with its state. Most have none, and overwrite `draw` alone."""

    name: ClassVar[str]
    """By which configs choose it."""
    compares: ClassVar[bool] = False
    """Whether it reads `Memory.features` or `Memory.acted`."""
    weighs: ClassVar[bool] = False
    """Whether it has weights and learns from errors."""
    options: ClassVar[type] = NoKeys
    """The dataclass of its options, if it is a plugin's. Of rollouts a `RolloutKeys`, by default `BufferKeys`."""
    append_only = True
    """Whether an item stays in its row until the oldest ones leave."""

    def __init__(self, keys: Any, rows: int, size: int) -> None:
        """``keys``: its options. ``rows``: of the memory. ``size``: items that it chooses for a gradient step."""
        self.keys = keys

    # -------------------------------------------------------------- choosing

    @abstractmethod
    def draw(self, memory: Memory, key: int, steps: range, size: int) -> Numbers:
        """Choose items [len(steps), size] for the minibatches of these gradient steps.

        A minibatch is a function of the key, its step, the size, what the memory holds and the sampler's state,
        however many are drawn at once.
        """

    def weights(self, items: Numbers) -> Array | None:
        """Weights of sampled items, of the shape of ``items``, that correct for the choice; None unless it `weighs`."""
        return None

    def learned(self, items: Numbers, error: Array) -> None:
        """Learn how wrong the values of sampled items were: errors of the shape of ``items``, or [N, T]."""
        return

    def advance(self, step: int) -> None:
        """Follow the schedules of the options to environment step ``step``."""
        return

    def prefetches(self, step: int) -> bool:
        """Whether something can be done ahead of gradient step ``step``."""
        return False

    def prefetch(self, memory: Memory, key: int, step: int, size: int) -> None:
        """Compute what `draw` will need at gradient step ``step``, while step ``step - 1`` runs in another thread.

        It uses the network as it was before step ``step - 1``. Called only if the sampler `prefetches`.
        """
        return

    # -------------------------------------------------------------- keeping

    def places(self, memory: Memory, key: int, step: int, new: int) -> Numbers:
        """The rows [new] that arriving items take, after ``step`` gradient steps: by default those of a ring."""
        return (memory.count + np.arange(new)) % memory.rows

    def arrived(self, memory: Memory, places: Numbers) -> None:
        """Notice that items have arrived in these rows."""
        return

    # -------------------------------------------------------------- state

    def metrics(self, step: int) -> dict[str, float]:
        """Numbers about its state, by the names of metrics."""
        return {}

    def state_dict(self) -> StateDict:
        """Return what later choices depend on beside the memory."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state; the memory's own entries are beside the sampler's."""
        return


@dataclass(frozen=True, kw_only=True)
class RolloutKeys(ABC):
    """Keys of every sampler of rollouts, each of which keeps its own."""

    capacity: Count | None = None
    """Rollouts that it holds; null: as many as it needs."""

    @abstractmethod
    def rows(self, size: int, fragment: int) -> int:
        """Rollouts that there is room for, with ``size`` in a minibatch and ``fragment`` that arrive at once."""


@dataclass(frozen=True, kw_only=True)
class BufferKeys(RolloutKeys):
    """Keys of a sampler whose rollouts are sampled again and again."""

    capacity: Count = 1000
    """Rollouts that it holds."""

    def rows(self, size: int, fragment: int) -> int:
        return self.capacity
