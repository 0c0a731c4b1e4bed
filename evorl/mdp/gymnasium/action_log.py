"""The actions of the episodes that are going on: with its seed, all that a repeatable episode is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evorl.mdp.core import Action, Array
from evorl.mdp.decision_arrays import action_format
from evorl.util.types import StateDict


class ActionLog:
    """Actions [B, K] since the oldest of the B present episodes began, and no further."""

    def __init__(self, action: Action, slots: int) -> None:
        self._form = action_format(action)
        self._actions: list[Array] = []
        self._begun = [0] * slots  # where each present episode begins

    def append(self, actions: Array) -> None:
        self._actions.append(np.array(actions))

    def begin(self, slots: list[int]) -> None:
        """These slots' next actions are their episodes' first."""
        for slot in slots:
            self._begun[slot] = len(self._actions)
        oldest = min(self._begun)
        del self._actions[:oldest]
        self._begun = [begun - oldest for begun in self._begun]

    def __len__(self) -> int:
        return len(self._actions)

    def of(self, slot: int) -> Array:
        """The slot's actions [T, K] of its present episode."""
        dtype, width = self._form
        return np.array([actions[slot] for actions in self._actions[self._begun[slot] :]], dtype).reshape(-1, width)

    def rows(self, idle: Array) -> Iterator[Array]:
        """All actions [B, K] in turn, ``idle`` [K] where a slot's present episode had not begun."""
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
    """Logs [T_s, K] of B slots, all ending now, as ``longest`` rows [B, K]; what was before a log's start is zero."""
    rows = np.zeros((longest, len(logs), logs[0].shape[1]), logs[0].dtype)
    for slot, log in enumerate(logs):
        rows[longest - len(log) :, slot] = log
    return list(rows)
