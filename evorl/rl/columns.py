"""How an actor fills a batch: NumPy views of its storage, and how far the column of each slot is filled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor

from evorl.mdp.core import Array
from evorl.util.types import StateDict

if TYPE_CHECKING:
    from evorl.rl.actor import Player
    from evorl.rl.batch import Batch, PolicyGradientBatch, RolloutBatch, TransitionBatch
    from evorl.rl.core import Decision

ALL: Any = slice(None)


class Columns(ABC):
    """The columns of a batch, one of each slot, written in place: observations are copied once, here.

    A decision of a slot belongs to the batch, or it is passed over: made only since other slots need it to go on.
    """

    bootstraps: ClassVar[bool] = False
    """Whether the batch holds the value of the state after the last decision."""

    def __init__(self, batch: Batch) -> None:
        self.inputs = [x.numpy() for x in batch.inputs]
        self.legal = None if batch.legal is None else batch.legal.numpy()
        self.start, self.action = batch.start.numpy(), batch.action.numpy()
        self.reward, self.done = batch.reward.numpy(), batch.done.numpy()
        self.horizon, slots = batch.done.shape
        self.t = np.zeros(slots, np.int64)  # decisions in the batch, of each slot
        self.passed = np.zeros(slots, bool)  # the slot's decision in flight is passed over
        self.closed = np.zeros(slots, bool)  # the state after the slot's last decision is stored

    def begin(self, player: Player) -> None:
        """Begin a new batch. Decisions in flight belong to none."""
        self.t[:] = 0
        self.passed[:] = ~player.waiting
        self.closed[:] = False

    @property
    def short(self) -> Array:
        """The slots [B] that lack decisions."""
        return self.t < self.horizon

    def place(self, rows: Array) -> tuple[Any, Any]:
        """Return indices of the next decisions of ``rows`` into [T, B] storage and into [B] rows; plain slices when in
        lockstep."""
        t, first = self.t, int(self.t[rows[0]])
        if len(rows) == len(t) == np.count_nonzero(t == first):
            return first, ALL
        return (t[rows], rows), rows

    def at_next(self, x: Tensor) -> Tensor:
        """Return the rows [B, ...] of x [T, B, ...] at the next decision of each slot."""
        return x[self.t.clip(max=self.horizon - 1), np.arange(len(self.t))]

    def put(self, at: Any, sel: Any, player: Player, decision: Decision) -> None:
        """Store inputs and decisions of the selected rows at their places in the batch (see `place`)."""
        self._see(at, sel, player)
        self.action[at] = decision.action.numpy()[sel]

    def pass_over(self, rows: Array, player: Player, decision: Decision) -> None:
        """Let slots that have all their decisions make one that belongs to no batch."""
        mask = np.zeros_like(self.closed)
        mask[rows] = True
        self.close(mask, player, decision)
        self.passed[rows] = True

    def answered(self, rows: Array) -> Array:
        """Return those of the slots that wait again now whose decisions belong to the batch."""
        own = rows[~self.passed[rows]]
        self.passed[rows] = False
        return own

    def put_outcome(self, rows: Array, player: Player) -> None:
        """Store the rewards and episode ends that followed the decisions."""
        self._put_outcome(*self.place(rows), player)
        self.t[rows] += 1

    def take_back(self, rows: Array) -> None:
        """Take back the decisions of these slots, whose world failed.

        Their episodes are truncated in the states of these decisions. Where one ended before, nothing changes.
        """
        rows = rows[self.t[rows] > 0]
        rows = rows[~self.done[self.t[rows] - 1, rows]]
        before = (self.t[rows] - 1, rows)
        self.done[before] = True
        self._cut_at(before, (self.t[rows], rows))

    def close(self, slots: Array, player: Player, decision: Decision | None) -> None:
        """Store the states after the last decisions of the slots of this mask, where that is not done yet."""
        rows = slots & ~self.closed
        at, sel = (-1, ALL) if rows.all() else ((-1, rows), rows)
        self._put_last(at, sel, player, decision)
        self.closed |= slots

    def _put_outcome(self, at: Any, sel: Any, player: Player) -> None:
        self.reward[at] = player.decisions.reward[sel]
        self.done[at] = player.start[sel]
        if player.decisions.truncated[sel].any():
            self._put_cut(at, sel, player)

    def _put_last(self, at: Any, sel: Any, player: Player, decision: Decision | None) -> None:
        self._see(at, sel, player)

    def _see(self, at: Any, sel: Any, player: Player) -> None:
        for store, seen in zip(self.inputs, player.decisions.inputs, strict=True):
            store[at] = seen[sel]
        if self.legal is not None and player.decisions.legal is not None:
            self.legal[at] = player.decisions.legal[sel]
        self.start[at] = player.start[sel]

    @abstractmethod
    def _put_cut(self, at: Any, sel: Any, player: Player) -> None:
        """Store what is learned of the states that truncated episodes were cut at."""

    @abstractmethod
    def _cut_at(self, before: Any, at: Any) -> None:
        """Let the states of the decisions ``at`` be those that the episodes of the ones ``before`` were cut at."""

    def state_dict(self) -> StateDict:
        """Return what the next batch needs to know of those before."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:  # noqa: B027 (most need to know nothing)
        """Restore the state of an actor that filled such a batch."""


class PolicyGradientColumns(Columns):
    """Decisions with their values: where an episode was cut, the value of that state counts."""

    bootstraps = True

    def __init__(self, batch: PolicyGradientBatch) -> None:
        super().__init__(batch)
        self.log_prob, self.value, self.final_value = (
            x.numpy() for x in (batch.log_prob, batch.value, batch.final_value)
        )
        self.carry = batch.carry

    def begin(self, player: Player) -> None:
        super().begin(player)
        self.final_value[:] = 0
        if self.carry is not None and player.carry is not None:
            self.carry.copy_(player.carry)

    def put(self, at: Any, sel: Any, player: Player, decision: Decision) -> None:
        super().put(at, sel, player, decision)
        self.log_prob[at] = decision.log_prob.numpy()[sel]
        self.value[at] = decision.value.numpy()[sel]

    def _put_cut(self, at: Any, sel: Any, player: Player) -> None:
        values = player.final_values().numpy()
        self.final_value[at] = np.where(player.decisions.truncated[:, None], values, 0)[sel]

    def _cut_at(self, before: Any, at: Any) -> None:
        self.final_value[before] = self.value[at]

    def _put_last(self, at: Any, sel: Any, player: Player, decision: Decision | None) -> None:
        super()._put_last(at, sel, player, decision)
        if self.bootstraps and decision is not None:
            self.value[at] = decision.value.numpy()[sel]


class RolloutColumns(PolicyGradientColumns):
    """Decisions with the policy that made them, and its features."""

    bootstraps = False

    def __init__(self, batch: RolloutBatch) -> None:
        super().__init__(batch)
        self.policy = batch.policy.numpy()
        self.features = None if batch.features is None else batch.features.numpy()

    def put(self, at: Any, sel: Any, player: Player, decision: Decision) -> None:
        super().put(at, sel, player, decision)
        for store, described in ((self.policy, decision.policy), (self.features, decision.features)):
            if store is not None and described is not None:
                store[at] = described.numpy()[sel]


class TransitionColumns(Columns):
    """Decisions and the states that followed them; the decisions of each slot are counted over the whole run."""

    def __init__(self, batch: TransitionBatch, member: int) -> None:
        super().__init__(batch)
        self.carries = None if batch.carries is None else batch.carries.numpy()
        self.terminated = batch.terminated.numpy()
        self.final_inputs = [x.numpy() for x in batch.final_inputs]
        self.final_legal = None if batch.final_legal is None else batch.final_legal.numpy()
        number, self.before = batch.origin.numpy()
        number[:] = np.arange(member * len(number), (member + 1) * len(number))
        self.decisions = np.zeros_like(self.t)  # all decisions of each slot but those taken back in a batch

    def begin(self, player: Player) -> None:
        super().begin(player)
        self.before[:] = self.decisions

    def put(self, at: Any, sel: Any, player: Player, decision: Decision) -> None:
        super().put(at, sel, player, decision)
        if self.carries is not None and player.carry is not None:
            before = player.carry.numpy().swapaxes(0, 1) * ~player.start[:, None, None]
            self.carries[at] = before[sel]
        self.decisions[sel] += 1

    def pass_over(self, rows: Array, player: Player, decision: Decision) -> None:
        super().pass_over(rows, player, decision)
        self.decisions[rows] += 1

    def take_back(self, rows: Array) -> None:
        super().take_back(rows)
        inside = self.t[rows] > 0
        self.decisions[rows[inside]] -= 1
        self.before[rows[~inside]] += 1  # what the batch before ended with is not what this one begins with

    def _put_outcome(self, at: Any, sel: Any, player: Player) -> None:
        super()._put_outcome(at, sel, player)
        self.terminated[at] = player.decisions.terminated[sel]

    def _put_cut(self, at: Any, sel: Any, player: Player) -> None:
        decisions = player.decisions
        for store, seen in zip(self.final_inputs, decisions.final, strict=True):
            store[at] = seen[sel]
        legal = decisions.legal if decisions.final_legal is None else decisions.final_legal
        if self.final_legal is not None and legal is not None:
            self.final_legal[at] = legal[sel]

    def _cut_at(self, before: Any, at: Any) -> None:
        for final, seen in zip(self.final_inputs, self.inputs, strict=True):
            final[before] = seen[at]
        if self.final_legal is not None and self.legal is not None:
            self.final_legal[before] = self.legal[at]

    def state_dict(self) -> StateDict:
        return {"decisions": self.decisions.copy()}

    def load_state_dict(self, state: StateDict) -> None:
        self.decisions = np.array(state["decisions"])
