"""A log of the actions of running episodes. Seed and actions are enough to replay a deterministic episode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from evorl.mdp.core import Action, Array
from evorl.mdp.decision_arrays import action_format
from evorl.util.types import StateDict

FIRST_ROWS = 64


class ActionLog:
    """Actions [B, K] since the start of the oldest of the B running episodes, side by side in one growing array."""

    def __init__(self, action: Action, slots: int) -> None:
        self._dtype, self._width = action_format(action)
        self._rows = np.zeros((FIRST_ROWS, slots, self._width), self._dtype)
        self._length = 0
        self._begun = [0] * slots  # index of each running episode's first action

    def append(self, actions: Array) -> None:
        if self._length == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[self._length] = actions
        self._length += 1

    def begin(self, slots: list[int]) -> None:
        """Start new episodes in these slots."""
        for slot in slots:
            self._begun[slot] = self._length
        oldest = min(self._begun)
        if 2 * oldest > self._length:  # else moving the rest would cost more than what it frees
            self._keep(self._rows[oldest : self._length])
            self._begun = [begun - oldest for begun in self._begun]

    def _keep(self, rows: Array) -> None:
        """Keep these rows alone, with room for as many again."""
        room = np.zeros((max(FIRST_ROWS, 2 * len(rows)), *rows.shape[1:]), self._dtype)
        room[: len(rows)] = rows
        self._rows, self._length = room, len(rows)

    def __len__(self) -> int:
        return self._length - min(self._begun)

    def of(self, slot: int) -> Array:
        """Return the actions [T, K] of the slot's running episode."""
        return self._rows[self._begun[slot] : self._length, slot].copy()

    def rows(self, idle: Array) -> Iterator[Array]:
        """Yield all actions [B, K] in order, with ``idle`` [K] before the start of a slot's running episode."""
        begun = np.array(self._begun)
        for time in range(min(self._begun), self._length):
            yield np.where((begun <= time)[:, None], self._rows[time], idle)

    def state_dict(self) -> StateDict:
        logs = [self.of(slot) for slot in range(len(self._begun))]
        return {"lengths": list(map(len, logs)), "actions": np.concatenate(logs)}

    def load_state_dict(self, state: StateDict) -> None:
        logs = np.split(np.asarray(state["actions"]), np.cumsum(state["lengths"])[:-1])
        longest = max(map(len, logs))
        self._begun = [longest - len(log) for log in logs]
        self._keep(_side_by_side(logs, longest, self._width, self._dtype))


def _side_by_side(logs: list[Array], longest: int, width: int, dtype: Any) -> Array:
    """Align the logs [T_s, K] of B slots at their ends [longest, B, K], zero before a log's start."""
    rows = np.zeros((longest, len(logs), width), dtype)
    for slot, log in enumerate(logs):
        rows[longest - len(log) :, slot] = log
    return rows


def copied(action: Any) -> Any:
    """Return an action that an environment may write into: a copy of an array, a number as it is."""
    return action.copy() if isinstance(action, np.ndarray) else action
