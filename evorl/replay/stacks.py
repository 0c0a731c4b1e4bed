"""Rollouts with each frame once: stacks of frames taken apart before a replay gets them, and put together afterwards.

The T+1 stacks of k frames of a rollout hold T+k different ones: those of its first state, and the newest of each later
state. Which of them a state holds follows from where episodes start. Letters in shapes: N rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evorl.mdp.core import Input
from evorl.mdp.stacks import check_stacks
from evorl.replay.rollouts import Array, Columns, Numbers


def take_apart(rollouts: Columns, inputs: Sequence[Input]) -> dict[str, Array]:
    """Return rollouts with frames [N, T+k, ...] in place of stacks [N, T+1, k, ...]; "start" says where episodes start.

    Raises `WorldError` for a stack that could not be put together again.
    """
    columns, later = dict(rollouts), rollouts["start"][:, 1:].reshape(-1)
    for name, entry in _stacked(inputs):
        x = rollouts[name]
        before, after = (some.reshape(len(later), *entry.shape) for some in (x[:, :-1], x[:, 1:]))
        check_stacks(entry, before, after, later)
        columns[name] = np.concatenate([x[:, 0], x[:, 1:, -1]], 1)
    return columns


def put_together(rollouts: Columns, inputs: Sequence[Input]) -> dict[str, Array]:
    """Return what was given to `take_apart`; stacks lie in memory with time first, as a network takes them."""
    columns = dict(rollouts)
    for name, entry in _stacked(inputs):
        places = frames_of_states(rollouts["start"], entry.shape[0]).swapaxes(0, 1)
        columns[name] = rollouts[name][np.arange(places.shape[1])[:, None], places].swapaxes(0, 1)
    return columns


def frames_of_states(start: Array, k: int) -> Numbers:
    """Return which of a rollout's T+k frames each state holds [N, T+1, k], by where episodes ``start`` [N, T+1].

    Before its first state's episode there is nothing to repeat, as this state is whole.
    """
    state = np.arange(start.shape[1])
    first = np.maximum.accumulate(np.where(start, state, 1 - k), 1)  # the state that each state's episode starts with
    frames: Numbers = np.maximum(state[:, None] + np.arange(k), first[..., None] + k - 1)
    return frames


def _stacked(inputs: Sequence[Input]) -> list[tuple[str, Input]]:
    return [(f"input {i}", entry) for i, entry in enumerate(inputs) if entry.stacked]
