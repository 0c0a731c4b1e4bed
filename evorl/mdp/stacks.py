"""Stacks of frames: inputs whose first axis holds the newest frames of their episode (`Input.stacked`).

With k frames in a stack, state t of an episode holds the frames max(t-k+1, 0), ..., t.
"""

from __future__ import annotations

from collections.abc import Sequence

from evorl.mdp.core import Array, Input, WorldError


def depth(inputs: Sequence[Input]) -> int:
    """Return the number of frames of the deepest stack; 1 without stacks."""
    return max((one.shape[0] for one in inputs if one.stacked), default=1)


def check_stacks(one: Input, before: Array, after: Array, begins: Array) -> None:
    """Raise `WorldError` unless the states ``after`` [N, k, ...] hold the frames of those ``before`` them [N, k, ...]
    and one more, or the same frame k times where their episode ``begins`` [N]."""
    first, later = after[begins], ~begins
    fresh = (first[:, :-1] == first[:, -1:]).all()
    if not (fresh and (after[later, :-1] == before[later, 1:]).all()):
        raise WorldError(
            f"the input {one.name!r} is no stack of the newest {one.shape[0]} frames, as its spec says: "
            + ("a state does not go on from the one before" if fresh else "an episode begins with several frames")
        )
