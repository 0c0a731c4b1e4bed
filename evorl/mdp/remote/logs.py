"""The actions of episodes in slots that decide at their own times."""

from __future__ import annotations

import numpy as np

from evorl.mdp.core import Action, Array
from evorl.mdp.decision_arrays import action_format
from evorl.mdp.remote.truth import some

FIRST_ROWS = 64


class Logs:
    """Actions [T, B, K] of B slots; slot s has taken ``length[s]`` in its episode. ``kept``: not only their numbers."""

    def __init__(self, action: Action, slots: int, kept: bool) -> None:
        dtype, width = action_format(action)
        self._rows, self._kept = np.zeros((FIRST_ROWS, slots, width), dtype), kept
        self.length = np.zeros(slots, np.int64)

    def append(self, slots: Array, actions: Array) -> None:
        at = self.length[slots]
        if self._kept:
            if some(at >= len(self._rows)):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._rows[at, slots] = actions
        self.length[slots] = at + 1

    def at(self, slots: Array, numbers: Array) -> Array:
        """The actions [n, K] of these numbers."""
        return self._rows[numbers, slots]

    def state(self) -> tuple[Array, Array]:
        """Lengths [B], and all actions that are kept side by side."""
        kept = self.length.tolist() if self._kept else []
        parts = [self._rows[:length, slot] for slot, length in enumerate(kept)]
        return self.length.copy(), np.concatenate([self._rows[:0, 0], *parts])

    def load(self, lengths: Array, actions: Array) -> None:
        self.length = np.array(lengths, np.int64)
        while len(self._rows) < self.length.max():
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        for slot, part in enumerate(np.split(np.asarray(actions), np.cumsum(self.length)[:-1])):
            self._rows[: len(part), slot] = part
