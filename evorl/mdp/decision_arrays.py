"""The [B, ...] arrays of a `Decisions`, written one slot at a time."""

from __future__ import annotations

import numpy as np

from evorl.mdp.core import Action, Array, Box, Decisions, Spec, State, heads
from evorl.util.types import StateDict


def empty_decisions(spec: Spec, slots: int) -> Decisions:
    """Return `Decisions` for B slots: zeros, and every action legal."""

    def inputs() -> tuple[Array, ...]:
        return tuple(np.zeros((slots, *each.shape), each.dtype) for each in spec.inputs)

    def legal() -> Array | None:
        return np.ones((slots, sum(heads(spec.action))), np.bool_) if spec.masked else None

    return Decisions(
        slots=np.zeros(0, np.int64),
        inputs=inputs(),
        legal=legal(),
        reward=np.zeros((slots, len(spec.rewards)), np.float32),
        terminated=np.zeros(slots, np.bool_),
        truncated=np.zeros(slots, np.bool_),
        final=inputs(),
        final_legal=legal(),
    )


def write_state(rows: Decisions, slot: int, state: State) -> None:
    """Write a state into the slot's rows of ``inputs`` and ``legal``."""
    for row, value in zip(rows.inputs, state.inputs):  # noqa: B905 (runs at every decision; `check` compares lengths)
        row[slot] = value
    if rows.legal is not None:
        rows.legal[slot] = state.legal


def write_final_state(rows: Decisions, slot: int, state: State) -> None:
    """Write a state into the slot's rows of ``final`` and ``final_legal``."""
    for row, value in zip(rows.final, state.inputs, strict=True):
        row[slot] = value
    if rows.final_legal is not None:
        rows.final_legal[slot] = state.legal


def read_state(rows: Decisions, slot: int) -> State:
    """Return the slot's current state, as views of its rows."""
    return State(tuple(row[slot] for row in rows.inputs), None if rows.legal is None else rows.legal[slot])


def save_states(rows: Decisions, slots: Array) -> StateDict:
    """Return the current states of the given slots, for `restore_states`."""
    return {str(n): row[slots] for n, row in enumerate((*rows.inputs, rows.legal)) if row is not None}


def restore_states(rows: Decisions, slots: Array, state: StateDict) -> None:
    for n, row in enumerate((*rows.inputs, rows.legal)):
        if row is not None:
            row[slots] = state[str(n)]


def action_format(action: Action) -> tuple[type[np.generic], int]:
    """Return the dtype of actions and their number of components K."""
    if isinstance(action, Box):
        return np.float32, len(action.low)
    return np.int64, len(heads(action))
