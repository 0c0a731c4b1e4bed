"""The [B, ...] arrays of a `Decisions`, written one slot at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

import numpy as np

from evorl.mdp.core import Action, Array, Box, Decisions, Input, Spec, State, WorldError, heads
from evorl.mdp.forms import Form, Mismatch
from evorl.util.types import StateDict


def empty_decisions(spec: Spec, slots: int, channels_last: Collection[str] = ()) -> Decisions:
    """Return `Decisions` for B slots: zeros, and every action legal.

    ``channels_last``: names of pictures [C, H, W] that are kept with channels last in memory (`evorl.mdp.core.MDP`).
    """

    def inputs() -> tuple[Array, ...]:
        return tuple(_zeros(slots, each, each.name in channels_last) for each in spec.inputs)

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


def _zeros(slots: int, entry: Input, channels_last: bool) -> Array:
    if not channels_last:
        return np.zeros((slots, *entry.shape), entry.dtype)
    channels, height, width = entry.shape
    return np.moveaxis(np.zeros((slots, height, width, channels), entry.dtype), -1, 1)


def write_state(rows: Decisions, slot: int, state: State) -> None:
    """Write a state into the slot's rows of ``inputs`` and ``legal``."""
    for row, value in zip(rows.inputs, state.inputs, strict=True):
        row[slot] = value
    if rows.legal is not None:
        rows.legal[slot] = state.legal


def write_final_state(rows: Decisions, slot: int, state: State) -> None:
    """Write a state into the slot's rows of ``final`` and ``final_legal``."""
    for row, value in zip(rows.final, state.inputs, strict=True):
        row[slot] = value
    if rows.final_legal is not None:
        rows.final_legal[slot] = state.legal


class BattleForms:
    """The forms of a battle's states and rewards; ``world`` is its name."""

    def __init__(self, spec: Spec, world: str) -> None:
        self._inputs = tuple(Form(f"the input {entry.name!r}", entry.shape, entry.dtype) for entry in spec.inputs)
        self._reward = Form("the reward", (len(spec.rewards),), np.float32)
        self._legal = Form("the legal mask", (sum(heads(spec.action)),), np.bool_) if spec.masked else None
        self._world = world

    def state(self, slot: int, state: State) -> State:
        """Return a slot's state as arrays of the declared forms. Runs at every decision. Raises `Mismatch`."""
        if len(state.inputs) != len(self._inputs):
            raise Mismatch(f"the spec declares {len(self._inputs)} inputs, and the state has {len(state.inputs)}")
        if (state.legal is None) != (self._legal is None):
            raise Mismatch(f"the state has {'no' if self._legal else 'a'} legal mask, unlike what its spec declares")
        watch = "" if slot else self._world
        inputs = tuple([form.fit(x, watch=watch) for form, x in zip(self._inputs, state.inputs, strict=True)])
        return State(inputs, None if self._legal is None else self._legal.fit(state.legal))

    def reward(self, reward: Any) -> Array:
        """Return a step's reward [R]. Raises `Mismatch`."""
        return self._reward.fit(reward)


def read_state(rows: Decisions, slot: int) -> State:
    """Return the slot's current state, as views of its rows."""
    return State(tuple(row[slot] for row in rows.inputs), None if rows.legal is None else rows.legal[slot])


def digest(rows: Decisions, slot: int) -> int:
    """Return a hash of the slot's current observation."""
    value = hashlib.blake2b(digest_size=7)
    for x in read_state(rows, slot).inputs:
        value.update(x.tobytes())
    return int.from_bytes(value.digest(), "little")


def check_digests(rows: Decisions, slots: Collection[int], digests: Array, name: str) -> None:
    """Raise `WorldError` if a slot does not show the observation with its digest (0: unknown)."""
    for slot in slots:
        if digests[slot] and digest(rows, slot) != digests[slot]:
            raise WorldError(
                f"{name}, slot {slot}: replaying the episode led to another state; "
                "only a world that is deterministic given seed and actions can be resumed"
            )


def save_states(rows: Decisions, slots: Array) -> StateDict:
    """Return the current states of the given slots, for `restore_states`."""
    return {str(n): row[slots] for n, row in enumerate((*rows.inputs, rows.legal)) if row is not None}


def restore_states(rows: Decisions, slots: Array, state: StateDict) -> None:
    for n, row in enumerate((*rows.inputs, rows.legal)):
        if row is not None:
            row[slots] = state[str(n)]


def rule_actions(spec: Spec, count: int) -> Array:
    """Return actions [count, K] that no policy takes: -1, and NaN for a Box. They leave a decision to the rule player.

    Worlds with `World.takes_rule_action` understand them.
    """
    dtype, width = action_format(spec.action)
    return np.full((count, width), np.nan if dtype is np.float32 else -1, dtype)


def action_format(action: Action) -> tuple[type[np.generic], int]:
    """Return the dtype of actions and their number of components K."""
    if isinstance(action, Box):
        return np.float32, len(action.low)
    return np.int64, len(heads(action))
