"""Prioritised sampling in proportion to priorities (Schaul et al. 2016, arXiv 1511.05952, algorithm 1).

Item i is drawn with probability P(i) = p_i^alpha / sum_k p_k^alpha. The priority p_i of a transition is its last
absolute error; that of a sequence or a rollout is eta times the largest absolute error of its decisions, and 1 - eta
times the mean one (R2D2: Kapturowski et al. 2019, section 2.3). A new item has the largest priority so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from evorl.replay.rollouts import Array, Numbers
from evorl.replay.samplers.core import BufferKeys, Memory, Sampler
from evorl.util import seed as seeds
from evorl.util.schedule import Anneal, Schedule
from evorl.util.schedule import value as scheduled
from evorl.util.types import Fraction, NonNegative, StateDict

Reals = NDArray[np.float64]

LEAST = 1e-6  # priority of an item without an error (Schaul et al. 2016, section 3.3)


@dataclass(frozen=True, kw_only=True)
class PrioritizedKeys:
    """Keys for transitions."""

    alpha: NonNegative = 0.6
    """Exponent of priorities; 0 draws evenly."""
    beta: Schedule = field(default_factory=lambda: Anneal(start=0.4, end=1.0, steps=100_000))
    """Exponent of the weights that undo the bias of priorities, 0 does not: a number, or a schedule over environment
    steps."""


@dataclass(frozen=True, kw_only=True)
class PrioritizedSequences(PrioritizedKeys):
    """Keys for sequences."""

    alpha: NonNegative = 0.9
    beta: Schedule = 0.6
    eta: Fraction = 0.9
    """Share of the largest error in a priority; the rest is the mean."""


@dataclass(frozen=True, kw_only=True)
class PrioritizedRollouts(PrioritizedSequences, BufferKeys):
    """Keys for rollouts."""


class Prioritized(Sampler):
    """In proportion to the error of the values."""

    name = "prioritized"
    weighs: ClassVar[bool] = True

    def __init__(self, keys: PrioritizedKeys, rows: int, size: int) -> None:
        self.keys, self.priorities = keys, Priorities(rows, keys.alpha)
        self.beta = scheduled(keys.beta, 0)

    def advance(self, step: int) -> None:
        self.beta = scheduled(self.keys.beta, step)

    def arrived(self, memory: Memory, places: Numbers) -> None:
        self.priorities.follow(memory.count - memory.held, memory.count)

    def draw(self, memory: Memory, key: int, steps: range, size: int) -> Numbers:
        self.priorities.follow(memory.count - memory.held, memory.count)
        return self.priorities.draw(key, steps.start, len(steps), size)

    def weights(self, items: Numbers) -> Array:
        return self.priorities.weights(items, self.beta)

    def learned(self, items: Numbers, error: Array) -> None:
        error = error.astype(np.float64)
        if error.ndim == items.ndim:
            return self.priorities.update(items, error + LEAST)
        assert isinstance(self.keys, PrioritizedSequences)
        size, eta = np.abs(error), self.keys.eta
        self.priorities.update(items, np.maximum(eta * size.max(-1) + (1 - eta) * size.mean(-1), LEAST))

    def state_dict(self) -> StateDict:
        return {"priorities": self.priorities.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        self.priorities.load_state_dict(state["priorities"])


class Priorities:
    """Priorities of the newest items, at most as many as a ring has ``rows``.

    Their powers are the leaves of a sum tree over the rows. So drawing and changing priorities take log2(rows)
    operations, each on whole arrays.
    """

    def __init__(self, rows: int, alpha: float) -> None:
        self.rows, self.alpha = rows, alpha
        self.levels = (rows - 1).bit_length()
        self.leaves = 1 << self.levels
        self.tree = np.zeros(2 * self.leaves)  # node n is the sum of nodes 2 n and 2 n + 1; the leaves come last
        self.low = self.high = 0  # numbers of the items that have a priority: low to high - 1
        self.largest = 1.0  # priority so far, which new transitions get

    def follow(self, low: int, high: int) -> None:
        """Forget the items before ``low``; new ones, up to ``high`` - 1, get the largest priority so far."""
        self._put(np.arange(self.low, min(low, self.high)), np.zeros(1))
        self._put(np.arange(max(self.high, low), high), self._power(np.array([self.largest])))
        self.low, self.high = low, high

    def draw(self, key: int, first: int, minibatches: int, size: int) -> Numbers:
        """Draw minibatches [minibatches, size] of gradient steps ``first`` and later.

        A minibatch has one item from each of ``size`` equal parts of the sum of priorities (appendix B.2.1). It
        depends on the key, the number of its gradient step, and the priorities, however many are drawn at once.
        """
        counter = np.arange(first * size, (first + minibatches) * size, dtype=np.uint64)
        within = seeds.uniform(np.array([key], np.uint64), counter).reshape(minibatches, size)
        place = self._find((np.arange(size) + within) / size * self.tree[1])
        numbers: Numbers = self.low + (place - self.low) % self.rows
        return numbers

    def probability(self, numbers: Numbers) -> Reals:
        """The probability [...] of items to be drawn (eq. 1)."""
        share: Reals = self.tree[self.leaves + numbers % self.rows] / self.tree[1]
        return share

    def update(self, numbers: Numbers, priority: Reals) -> None:
        """Set the priorities of items, both [N] or [minibatches, size]; of one that occurs twice, the last."""
        self.largest = max(self.largest, float(priority.max()))
        self._put(numbers.reshape(-1), self._power(priority.reshape(-1)))

    def weights(self, numbers: Numbers, beta: float) -> NDArray[np.float32]:
        """Weights (1 / (count P(i)))^beta [..., size] that undo the bias, divided by a minibatch's largest."""
        weight: Reals = ((self.high - self.low) * self.probability(numbers)) ** -beta
        relative: NDArray[np.float32] = (weight / weight.max(-1, keepdims=True)).astype(np.float32)
        return relative

    def _power(self, priority: Reals) -> Reals:
        power: Reals = priority**self.alpha
        return power

    def _put(self, numbers: Numbers, leaf: Reals) -> None:
        node = self.leaves + numbers % self.rows
        self.tree[node] = leaf
        for _ in range(self.levels):
            node = node >> 1
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]

    def _find(self, mass: Reals) -> Numbers:
        """The places at which the running sum of the leaves exceeds ``mass``."""
        node = np.ones(mass.shape, np.int64)
        for _ in range(self.levels):
            left = self.tree[2 * node]
            right = (mass >= left) & (self.tree[2 * node + 1] > 0)  # never a leaf of nothing, however sums round
            mass = np.where(right, mass - left, mass)
            node = 2 * node + right
        return node - self.leaves

    def state_dict(self) -> StateDict:
        leaves = self.tree[self.leaves + np.arange(self.low, self.high) % self.rows]
        return {"low": self.low, "largest": self.largest, "leaves": leaves, "alpha": self.alpha}

    def load_state_dict(self, state: StateDict) -> None:
        self.tree[:] = 0
        self.low, self.largest, leaves = state["low"], state["largest"], np.asarray(state["leaves"])
        if (alpha := state.get("alpha", self.alpha)) != self.alpha:  # of another individual of a population
            leaves = leaves ** (self.alpha / alpha) if alpha else self._power(np.full(len(leaves), self.largest))
        self.high = self.low + len(leaves)
        self._put(np.arange(self.low, self.high), leaves)
