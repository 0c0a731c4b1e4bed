"""A log of the actions of running episodes. Seed and actions are enough to replay a deterministic episode."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evorl.mdp.core import Action, Array
from evorl.mdp.decision_arrays import action_format
from evorl.util.types import StateDict


class ActionLog:
    """Actions [B, K] since the start of the oldest of the B running episodes."""

    def __init__(self, action: Action, slots: int) -> None:
        self._form = action_format(action)
        self._actions: list[Array] = []
        self._begun = [0] * slots  # index of each running episode's first action

    def append(self, actions: Array) -> None:
        self._actions.append(np.array(actions))

    def begin(self, slots: list[int]) -> None:
        """Start new episodes in these slots."""
        for slot in slots:
            self._begun[slot] = len(self._actions)
        oldest = min(self._begun)
        del self._actions[:oldest]
        self._begun = [begun - oldest for begun in self._begun]

    def __len__(self) -> int:
        return len(self._actions)

    def of(self, slot: int) -> Array:
        """Return the actions [T, K] of the slot's running episode."""
        dtype, width = self._form
        return np.array([actions[slot] for actions in self._actions[self._begun[slot] :]], dtype).reshape(-1, width)

    def rows(self, idle: Array) -> Iterator[Array]:
        """Yield all actions [B, K] in order, with ``idle`` [K] before the start of a slot's running episode."""
        begun = np.array(self._begun)
        for time, actions in enumerate(self._actions):
            yield np.where((begun <= time)[:, None], actions, idle)

    def state_dict(self) -> StateDict:
        logs = [self.of(slot) for slot in range(len(self._begun))]
        return {"lengths": list(map(len, logs)), "actions": np.concatenate(logs)}

    def load_state_dict(self, state: StateDict) -> None:
        logs = np.split(np.asarray(state["actions"]), np.cumsum(state["lengths"])[:-1])
        longest = max(map(len, logs))
        self._begun = [longest - len(log) for log in logs]
        self._actions = _side_by_side(logs, longest)


def _side_by_side(logs: list[Array], longest: int) -> list[Array]:
    """Align the logs [T_s, K] of B slots at their ends; return ``longest`` arrays [B, K], zero before a log's start."""
    rows = np.zeros((longest, len(logs), logs[0].shape[1]), logs[0].dtype)
    for slot, log in enumerate(logs):
        rows[longest - len(log) :, slot] = log
    return list(rows)
