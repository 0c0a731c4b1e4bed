"""The [B, ...] arrays of an arena whose slots are written one at a time."""

from __future__ import annotations

import numpy as np

from evorl.mdp.core import Action, Array, Box, Decisions, Spec, State, heads
from evorl.util.types import StateDict


def blank(spec: Spec, slots: int) -> Decisions:
    """Decisions of B slots of which none has seen anything: zeros, everything legal."""

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


def show(rows: Decisions, slot: int, state: State) -> None:
    """Write a state as the slot's present one."""
    for row, value in zip(rows.inputs, state.inputs):  # noqa: B905 (runs at every decision; `check` compares lengths)
        row[slot] = value
    if rows.legal is not None:
        rows.legal[slot] = state.legal


def show_final(rows: Decisions, slot: int, state: State) -> None:
    """Write a state as the one the slot's episode was cut at."""
    for row, value in zip(rows.final, state.inputs, strict=True):
        row[slot] = value
    if rows.final_legal is not None:
        rows.final_legal[slot] = state.legal


def seen(rows: Decisions, slot: int) -> State:
    """The state a slot was last shown, as views of its rows."""
    return State(tuple(row[slot] for row in rows.inputs), None if rows.legal is None else rows.legal[slot])


def saved_seen(rows: Decisions, slots: Array) -> StateDict:
    """What the given slots were last shown, for `restore_seen`."""
    return {str(n): row[slots] for n, row in enumerate((*rows.inputs, rows.legal)) if row is not None}


def restore_seen(rows: Decisions, slots: Array, state: StateDict) -> None:
    for n, row in enumerate((*rows.inputs, rows.legal)):
        if row is not None:
            row[slots] = state[str(n)]


def action_form(action: Action) -> tuple[type[np.generic], int]:
    """The dtype in which actions travel, and their number of components K."""
    if isinstance(action, Box):
        return np.float32, len(action.low)
    return np.int64, len(heads(action))
