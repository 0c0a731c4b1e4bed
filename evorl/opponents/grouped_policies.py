"""Policies of one form that decide in places: the places of one policy share its weights.

A pass reads the weights of every policy from memory, which takes longer than what is computed with them. So each policy
has blocks of a few rows, as many as its places need, instead of weights for each place.

Letters in shapes: K places, B blocks, S rows of each, N = B S rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.core import Array
from evorl.nets.encoders import is_image
from evorl.rl.frozen_policies import FrozenPolicies
from evorl.rl.network_learner import NetworkLearner

ROWS = 8
"""Rows of a block. A constant, since it decides the last bits."""
EMPTY = -(2**31)
"""The number of the policy in a place that has none."""


class GroupedPolicies:
    """Policies in K places, each known by a number.

    The bits of a place depend on its own inputs, noise and policy, and at most on which places have the same policy.
    """

    def __init__(self, example: NetworkLearner[Any], places: int) -> None:
        """``example`` has the form of all policies."""
        # of images, the time is that of computing, which idle rows would take, too
        self.rows = 1 if any(map(is_image, example.spec.inputs)) else ROWS
        self.blocks = FrozenPolicies(example, max(2, -(-places // self.rows)))  # one alone has other bits than several
        self._number = np.full(places, EMPTY)  # of the policy in each place
        self._weights: dict[int, Sequence[Tensor]] = {}  # of every policy that has a place
        self._held: dict[int, list[int]] = {}  # blocks of each policy
        self._free = [*range(self.blocks.places)]
        self._row = np.zeros(places, np.int64)  # of each place
        self._place = torch.zeros(0, dtype=torch.int64)  # [N] of each row, any place where a row is idle
        self._changed = True

    @property
    def learner(self) -> NetworkLearner[Any]:
        """The example."""
        return self.blocks.learner

    def put(self, place: int, number: int, weights: Sequence[Tensor]) -> None:
        """Let a policy decide in a place: another number is another policy, `renew` gives one other weights."""
        self._number[place] = number
        self._weights.setdefault(number, weights)
        self._changed = True

    def leave(self, place: int) -> None:
        """Let no policy of this form decide in a place."""
        if self._number[place] != EMPTY:
            self._number[place] = EMPTY
            self._changed = True

    def clear(self) -> None:
        """Let no policy decide in any place, and forget all policies."""
        self._number[:] = EMPTY
        self._changed = True
        self._arrange()

    def renew(self, number: int, weights: Sequence[Tensor]) -> None:
        """Give the policy of this number new weights wherever it decides."""
        if number in self._weights:
            self._weights[number] = weights
            for block in self._held.get(number, ()):
                self.blocks.put(block, weights)

    def weights_of(self, place: int) -> list[Tensor]:
        """What a place acts with, as `Learner.weights` lists it."""
        self._arrange()
        return [x[self._row[place] // self.rows] for x in self.blocks.weights]

    def decide(
        self, places: Array, inputs: tuple[Tensor, ...], legal: Tensor | None, noise: Tensor, carry: Tensor | None,
        begins: Tensor | None,
    ) -> tuple[Array, Tensor | None]:  # fmt: skip
        """Return the actions [k, A] of these places, and the recurrent states [2, K, H] after them.

        The arguments have a row for each of all places.
        """
        self._arrange()
        row, at = self._row[places], self._place
        seen = tuple(x.index_select(0, at) for x in inputs)
        masks = None if legal is None else legal.index_select(0, at)
        memory = None if carry is None else carry.index_select(1, at)
        starts = None if begins is None else begins.index_select(0, at)
        decision = self.blocks.act(seen, masks, noise.index_select(0, at), memory, starts)
        if carry is not None and decision.carry is not None:
            carry = carry.clone()
            carry[:, places] = decision.carry[:, row]
        played: Array = decision.played.numpy().take(row, 0)
        return played, carry

    # -------------------------------------------------------------- blocks

    def _arrange(self) -> None:
        """Give every place a row, if places have changed: those of a policy its first rows, in their order."""
        if not self._changed:
            return
        self._changed = False
        mine = np.flatnonzero(self._number != EMPTY)
        order = mine[self._number[mine].argsort(kind="stable")]
        numbers, first, count = np.unique(self._number[order], return_index=True, return_counts=True)
        needed = -(-count // self.rows)
        self._hold(dict(zip(numbers.tolist(), needed.tolist(), strict=True)))
        rank = np.arange(len(order)) - first.repeat(count)
        block = (needed.cumsum() - needed).repeat(count) + rank // self.rows
        held = np.array([block for number in numbers.tolist() for block in self._held[number]], np.int64)
        self._row[order] = held[block] * self.rows + rank % self.rows
        place = np.zeros(self.blocks.places * self.rows, np.int64)
        place[self._row[order]] = order
        self._place = torch.from_numpy(place)

    def _hold(self, needed: dict[int, int]) -> None:
        """Give every policy as many blocks as it needs, with its weights."""
        for number in [*self._held]:
            while len(self._held[number]) > needed.get(number, 0):
                self._free.append(self._held[number].pop())
            if number not in needed:
                del self._held[number]
        self._weights = {number: self._weights[number] for number in needed}
        if (more := sum(needed.values()) - self.blocks.places) > 0:
            more += sum(needed.values()) // 16  # so that the next ones that come do not add blocks one by one
            self._free += range(self.blocks.places, self.blocks.places + more)
            self.blocks.extend(more)
        for number, count in needed.items():
            held = self._held.setdefault(number, [])
            while len(held) < count:
                held.append(self._free.pop())
                self.blocks.put(held[-1], self._weights[number])
