"""How an actor writes into a batch: NumPy views of its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evorl.mdp.core import Array
from evorl.rl.core import Batch, Decision

if TYPE_CHECKING:
    from evorl.rl.actor import Player

ALL: Any = slice(None)


class Columns:
    """NumPy views of a batch's storage, written in place: observations are copied once, here."""

    def __init__(self, batch: Batch) -> None:
        self.inputs = [x.numpy() for x in batch.inputs]
        self.legal = None if batch.legal is None else batch.legal.numpy()
        self.start, self.action, self.log_prob = batch.start.numpy(), batch.action.numpy(), batch.log_prob.numpy()
        self.value, self.final_value = batch.value.numpy(), batch.final_value.numpy()
        self.reward, self.done = batch.reward.numpy(), batch.done.numpy()
        self.terminated = None if batch.terminated is None else batch.terminated.numpy()
        self.final_inputs = None if batch.final_inputs is None else [x.numpy() for x in batch.final_inputs]
        self.final_legal = None if batch.final_legal is None else batch.final_legal.numpy()
        self.carries = None if batch.carries is None else batch.carries.numpy()
        self.policy = None if batch.policy is None else batch.policy.numpy()
        self.features = None if batch.features is None else batch.features.numpy()

    def put(self, at: Any, sel: Any, player: Player, decision: Decision) -> None:
        """Store inputs and decisions of the selected rows at their places in the batch (see `index`)."""
        self._see(at, sel, player)
        self.action[at] = decision.action.numpy()[sel]
        self.log_prob[at] = decision.log_prob.numpy()[sel]
        self.value[at] = decision.value.numpy()[sel]
        if self.carries is not None and player.carry is not None:
            before = player.carry.numpy().swapaxes(0, 1) * ~player.start[:, None, None]
            self.carries[at] = before[sel]
        for store, described in ((self.policy, decision.policy), (self.features, decision.features)):
            if store is not None and described is not None:
                store[at] = described.numpy()[sel]

    def put_outcome(self, at: Any, sel: Any, player: Player) -> None:
        """Store the rewards and episode ends that followed the decisions."""
        now = player.now
        self.reward[at] = now.reward[sel]
        self.done[at] = player.start[sel]
        if self.terminated is not None:
            self.terminated[at] = now.terminated[sel]
        if not now.truncated[sel].any():
            return
        if self.final_inputs is None:
            value = player.final_values().numpy()
            self.final_value[at] = np.where(now.truncated[:, None], value, 0)[sel]
            return
        for store, seen in zip(self.final_inputs, now.final, strict=True):
            store[at] = seen[sel]
        final_legal = now.legal if now.final_legal is None else now.final_legal
        if self.final_legal is not None and final_legal is not None:
            self.final_legal[at] = final_legal[sel]

    def truncate_before(self, t: Array, slots: Array) -> None:
        """Truncate the episodes that these slots were in, in the states of their decisions ``t``, at least 1. Where
        one has ended there already, nothing changes."""
        slots = slots[~self.done[t[slots] - 1, slots]]
        before, at = (t[slots] - 1, slots), (t[slots], slots)
        self.done[before] = True
        if self.final_inputs is None:
            self.final_value[before] = self.value[at]
            return
        for final, seen in zip(self.final_inputs, self.inputs, strict=True):
            final[before] = seen[at]
        if self.final_legal is not None and self.legal is not None:
            self.final_legal[before] = self.legal[at]

    def put_last(self, sel: Any, player: Player, decision: Decision | None) -> None:
        """Store the bootstrap states of the selected rows, and their values."""
        at = -1 if sel is ALL else (-1, sel)
        self._see(at, sel, player)
        if decision is not None:
            self.value[at] = decision.value.numpy()[sel]

    def _see(self, at: Any, sel: Any, player: Player) -> None:
        for store, seen in zip(self.inputs, player.now.inputs, strict=True):
            store[at] = seen[sel]
        if self.legal is not None and player.now.legal is not None:
            self.legal[at] = player.now.legal[sel]
        self.start[at] = player.start[sel]


def index(t: Array, rows: Array) -> tuple[Any, Any]:
    """Return indices of rows at times ``t`` into [T, B] storage and into [B] rows; plain slices when in lockstep."""
    first = int(t[rows[0]])
    if len(rows) == len(t) == np.count_nonzero(t == first):
        return first, ALL
    return (t[rows], rows), rows
