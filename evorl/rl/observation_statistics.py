"""Running statistics of observations: the same bits in any order of arrival."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from evorl.mdp.core import Array
from evorl.nets.statistics import Moments

BLOCK = 64  # decisions of each slot that are merged together; a constant, since it decides the last bits


class InputBlock(NamedTuple):
    """Inputs of 64 decisions of each slot, by decision number and slot."""

    seen: Array  # bool [BLOCK, B]
    inputs: dict[int, Array]  # inputs with statistics [BLOCK, B, ...], by index in the spec


class ObservationStatistics:
    """Gathers the inputs of decisions in `moments`.

    Decision t of a slot belongs to block t div BLOCK. A block is merged, by time and then by slot, once no slot can add
    to it any more. A lockstep world needs one block at a time; an irregular one gives the same bits.
    """

    def __init__(self, moments: Moments, slots: int) -> None:
        self.moments = moments
        self.t = np.zeros(slots, np.int64)  # decisions of each slot
        self._blocks: dict[int, InputBlock] = {}  # open blocks, in order

    def see(self, inputs: tuple[Array, ...], rows: Array, playing: Array) -> None:
        """Add the inputs [B, ...] of the slots in ``rows``. Slots that are not ``playing`` [B] add nothing."""
        rows = rows[playing[rows]]
        numbers, at = np.divmod(self.t[rows], BLOCK)
        for number in np.unique(numbers):
            mine = numbers == number
            self._put(int(number), at[mine], rows[mine], inputs)
        self.t[rows] += 1
        self._merge([number for number in self._blocks if number < self.t[playing].min() // BLOCK])

    def _put(self, number: int, at: Array, rows: Array, inputs: tuple[Array, ...]) -> None:
        if number not in self._blocks:
            stores = {i: np.empty((BLOCK, *inputs[i].shape), np.float32) for i in self.moments.running}
            self._blocks[number] = InputBlock(np.zeros((BLOCK, len(self.t)), bool), stores)
        block = self._blocks[number]
        block.seen[at, rows] = True
        for i, store in block.inputs.items():
            store[at, rows] = inputs[i][rows]

    def close(self) -> None:
        """Merge all open blocks: no slot plays on."""
        self._merge(list(self._blocks))

    def _merge(self, numbers: list[int]) -> None:
        for number in sorted(numbers):
            block = self._blocks.pop(number)
            self.moments.update({i: torch.from_numpy(x[block.seen]) for i, x in block.inputs.items()})
