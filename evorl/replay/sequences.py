"""Sequences of transitions within an episode, each with a prefix for a recurrent core to burn in.

Letters in shapes: N sequences, T decisions to learn from, P decisions of the longest prefix, n rewards that a target
sums, R named rewards, H width of the core.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.replay.storage import NONE, Array, Numbers, Storage


class Sequences(NamedTuple):
    """The prefix of a sequence ends with state P - 1, its decisions to learn from are made in the states P onwards.

    Where the prefix or the sequence is shorter, its first or last state is repeated.
    """

    inputs: tuple[Array, ...]  # each [P + T + n, N, ...]: of the states
    legal: Array | None  # bool [T + n, N, L]: from state P on
    carry: Array  # [2, N, H] in the first state of the prefix
    prefix: Numbers  # [N]: decisions of the prefix
    action: Array  # [T, N, K]
    reward: Array  # [T, N, R], discounted and summed over up to n steps
    discount: Array  # [T, N, R]: of the value of the state they led to; 0 after a termination
    ahead: Numbers  # [T, N]: that state, counted from state P
    exists: NDArray[np.bool_]  # [T, N]: whether there is such a decision
    numbers: Numbers  # [T, N] of the transitions


class Extent(NamedTuple):
    """How much of an episode is read."""

    prefix: int  # P
    decisions: int  # T
    steps: int  # n


def read_sequences(
    storage: Storage, numbers: Numbers, oldest: int, length: int, gamma: Array, extent: Extent
) -> Sequences:
    """Return the sequences whose first decisions to learn from are the transitions [N] of these numbers, as they were
    when ``length`` transitions existed and ``oldest`` was the oldest number that could be read.

    A sequence ends with its episode, or with the newest transition. Its prefix begins with the episode, or with the
    oldest transition.
    """
    rows, n = storage.shape.rows, extent.steps
    carry = storage.carry
    assert carry is not None
    prefix, size = [numbers], np.zeros(len(numbers), np.int64)
    for _ in range(extent.prefix):
        before = storage.previous[prefix[0] % rows]
        prefix.insert(0, np.where(before >= oldest, before, prefix[0]))
        size += before >= oldest
    path, present = [numbers], [np.ones(len(numbers), bool)]
    for _ in range(extent.decisions + n - 2):
        following = storage.following[path[-1] % rows]
        goes_on = (following != NONE) & (following < length)
        path.append(np.where(goes_on, following, path[-1]))
        present.append(goes_on)
    at, exists, learned = np.array(path) % rows, np.array(present), slice(0, extent.decisions)

    # n-step returns: of those of the decisions t to t + n - 1 that are there
    shape = (extent.decisions, len(numbers))
    reward, discount = np.zeros((*shape, len(gamma))), np.ones((*shape, len(gamma)))
    ahead = np.repeat(np.arange(extent.decisions)[:, None], len(numbers), 1)
    for k in range(n):
        then = slice(k, k + extent.decisions)
        more = exists[then]
        reward += np.where(more[..., None], discount * storage.reward[at[then]], 0)
        discount *= np.where(more[..., None], gamma, 1)
        ahead += more
    discount[storage.terminated[at[n - 1 :]]] = 0  # of the last of them, which is repeated
    states = np.concatenate([storage.frame[np.array(prefix) % rows], storage.next_frame[at]])
    return Sequences(
        storage.seen(states),
        None if storage.legal is None else storage.legal[states[extent.prefix :] % storage.shape.frames],
        carry[prefix[0] % rows].swapaxes(0, 1),
        size,
        storage.action[at[learned]],
        reward.astype(np.float32),
        discount.astype(np.float32),
        ahead,
        exists[learned],
        np.array(path)[learned],
    )
