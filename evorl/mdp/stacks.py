"""Stacks of frames: inputs whose first axis holds the newest frames of their episode (`Input.stacked`).

With k frames in a stack, state t of an episode holds the frames max(t-k+1, 0), ..., t.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evorl.mdp.core import Array, Input, WorldError


def depth(inputs: Sequence[Input]) -> int:
    """Return the number of frames of the deepest stack; 1 without stacks."""
    return max((entry.shape[0] for entry in inputs if entry.stacked), default=1)


def check_stacks(entry: Input, before: Array, after: Array, begins: Array) -> None:
    """Raise `WorldError` unless the states ``after`` [N, k, ...] hold the frames of those ``before`` them [N, k, ...]
    and one more, or the same frame k times where their episode ``begins`` [N]."""
    for old, new, first in zip(before, after, begins, strict=True):  # row by row, in the processor's cache
        if not np.array_equal(new[:-1], new[1:] if first else old[1:]):
            raise WorldError(
                f"the input {entry.name!r} is no stack of the newest {entry.shape[0]} frames, as its spec says: "
                + ("an episode begins with several frames" if first else "a state does not go on from the one before")
            )
