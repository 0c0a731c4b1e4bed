"""Prioritised sampling in proportion to priorities (Schaul et al. 2016, arXiv 1511.05952, algorithm 1).

Transition i is drawn with probability P(i) = p_i^alpha / sum_k p_k^alpha. The powers are the leaves of a sum tree over
the places of a ring, so drawing and changing priorities take log2(places) operations, each on whole arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.util import seed as seeds
from evorl.util.types import StateDict

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]


class Drawn(NamedTuple):
    """Minibatches of transitions."""

    numbers: Numbers  # [minibatches, size] or [size]
    probability: Reals  # of each to be drawn


class Priorities:
    """Priorities of the newest transitions, at most as many as a ring has ``rows``."""

    def __init__(self, rows: int, alpha: float) -> None:
        self.rows, self.alpha = rows, alpha
        self.levels = (rows - 1).bit_length()
        self.leaves = 1 << self.levels
        self.tree = np.zeros(2 * self.leaves)  # node n is the sum of nodes 2 n and 2 n + 1; the leaves come last
        self.low = self.high = 0  # numbers of the transitions that have a priority: low to high - 1
        self.largest = 1.0  # priority so far, which new transitions get

    def follow(self, low: int, high: int) -> None:
        """Forget the transitions before ``low``; new ones, up to ``high`` - 1, get the largest priority so far."""
        self._put(np.arange(self.low, min(low, self.high)), np.zeros(1))
        self._put(np.arange(max(self.high, low), high), self._power(np.array([self.largest])))
        self.low, self.high = low, high

    def draw(self, key: int, first: int, minibatches: int, size: int) -> Drawn:
        """Draw minibatches of gradient steps ``first`` and later.

        A minibatch has one transition from each of ``size`` equal parts of the sum of priorities (appendix B.2.1). It
        depends on the key, the number of its gradient step, and the priorities, however many are drawn at once.
        """
        counter = np.arange(first * size, (first + minibatches) * size, dtype=np.uint64)
        within = seeds.uniform(np.array([key], np.uint64), counter).reshape(minibatches, size)
        place = self._find((np.arange(size) + within) / size * self.tree[1])
        numbers = self.low + (place - self.low) % self.rows
        return self.drawn(numbers)

    def drawn(self, numbers: Numbers) -> Drawn:
        """Transitions [...] with the probability of each to be drawn (eq. 1)."""
        return Drawn(numbers, self.tree[self.leaves + numbers % self.rows] / self.tree[1])

    def update(self, numbers: Numbers, priority: Reals) -> None:
        """Set the priorities of transitions, both [N] or [minibatches, size]; of one that occurs twice, the last."""
        self.largest = max(self.largest, float(priority.max()))
        self._put(numbers.reshape(-1), self._power(priority.reshape(-1)))

    def weights(self, drawn: Drawn, beta: float) -> NDArray[np.float32]:
        """Weights (1 / (count P(i)))^beta [..., size] that undo the bias, divided by a minibatch's largest."""
        weight: Reals = ((self.high - self.low) * drawn.probability) ** -beta
        relative: NDArray[np.float32] = (weight / weight.max(-1, keepdims=True)).astype(np.float32)
        return relative

    def _power(self, priority: Reals) -> Reals:
        found: Reals = priority**self.alpha
        return found

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
        return {"low": self.low, "largest": self.largest, "leaves": leaves}

    def load_state_dict(self, state: StateDict) -> None:
        self.tree[:] = 0
        self.low, self.largest, leaves = state["low"], state["largest"], np.asarray(state["leaves"])
        self.high = self.low + len(leaves)
        self._put(np.arange(self.low, self.high), leaves)
