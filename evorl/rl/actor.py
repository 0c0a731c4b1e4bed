"""Actors: an arena and a policy together fill batches to learn from."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.core import Arena, Array, Decisions, StepsTogether, WorldError, check_name, first_choices
from evorl.mdp.forms import check_arrays
from evorl.nets.distributions import draw_noise, noise_size
from evorl.rl.batch import Batch
from evorl.rl.columns import ALL
from evorl.rl.core import Acting, Decision, Episode, Learner, NotFinite, Played, play_of
from evorl.rl.ended_games import EndedGames
from evorl.util import seed as seeds
from evorl.util.heartbeat import heartbeat
from evorl.util.types import StateDict


class Player:
    """An arena played by a learner's policy, each slot in its fixed row of every forward pass.

    All rows are computed each time, so a row's last bits never depend on which other slots wait.
    """

    def __init__(self, arena: Arena, learner: Acting) -> None:
        self.arena, self.learner, self._play = arena, learner, play_of(learner)
        self.carry = learner.carry(arena.slots)
        self.start = np.ones(arena.slots, bool)  # the slot's next decision is its episode's first
        self.returns = np.zeros((arena.slots, len(arena.spec.rewards)))
        self.lengths = np.zeros(arena.slots, np.int64)
        self.names = [f"input {x.name!r}" for x in arena.spec.inputs]
        self.heads = first_choices(arena.spec.action)  # offset of each component's part of a legal mask
        self.reported: set[str] | None = None  # the names of every episode's results
        self.broken: dict[int, int] = {}  # slots whose world has just failed, and the decisions of their episode
        self.waiting = np.zeros(arena.slots, bool)  # slots that wait for an action
        self.wait_for(np.ones(arena.slots, bool))

    def wait_for(self, slots: Array) -> None:
        """Receive until all slots in this mask wait for an action, as after a start or a restore.

        Raises `NotFinite`, and `WorldError` for a state without a legal action.
        """
        self.waiting[:] = False
        while not self.waiting[slots].all():
            heartbeat()
            self.decisions = self.arena.recv()
            self.waiting[self.decisions.slots] = True
        self._check_form()
        self._check(self.decisions.inputs, np.flatnonzero(slots))
        self._check_legal(np.flatnonzero(slots))

    def decide(self, noise: Tensor) -> Decision:
        """Return the policy's decisions in the current states of all slots under noise [B, noise_size]."""
        return self.learner.act(*self._seen(), noise, *self._memory())

    def play(self, noise: Tensor) -> Played | Decision:
        """As `decide`, for decisions that no learner stores."""
        return self._play(*self._seen(), noise, *self._memory())

    def _seen(self) -> tuple[tuple[Tensor, ...], Tensor | None]:
        return _tensors(self.decisions.inputs), _tensor(self.decisions.legal)

    def _memory(self) -> tuple[Tensor | None, Tensor | None]:
        return self.carry, None if self.carry is None else torch.from_numpy(self.start)

    def send(self, rows: Array, decision: Played | Decision) -> None:
        """Send the decisions of the slots in ``rows`` to the arena."""
        every = len(rows) == self.arena.slots
        sel = ALL if every else rows
        if self.carry is not None and decision.carry is not None:
            self.carry = decision.carry if every else _merged(self.carry, decision.carry, rows)
        self.lengths[sel] += 1
        self.waiting[sel] = False
        self.arena.send(rows, decision.played.numpy()[sel])

    def recv(self) -> tuple[Decisions, list[tuple[int, Episode]]]:
        """Return the slots that now wait for an action, and the episodes that ended before that.

        Sends a heartbeat for every loop that plays. Raises `NotFinite`, and `WorldError` for a state without a legal
        action and for results of other names; `evorl.cluster.core.Stopped` where that is allowed.
        """
        heartbeat()
        decisions = self.decisions = self.arena.recv()
        rows = decisions.slots
        sel = ALL if len(rows) == self.arena.slots else rows
        self.waiting[sel] = True
        if decisions.inputs is not self._inputs:
            self._check_form()
        self._check(decisions.inputs, rows)
        self._check_legal(rows)
        _check_finite(decisions.reward, rows, "the reward")
        self.returns[sel] += decisions.reward[sel]
        done = (decisions.terminated | decisions.truncated)[sel]
        self.start[sel] = done
        if decisions.failed or self.broken:
            self.broken = self._begin_again(decisions.failed)
        if not np.count_nonzero(done):  # a tenth of what `any` takes
            return decisions, []
        ended = np.arange(self.arena.slots)[sel][done]
        self._check(decisions.final, ended[decisions.truncated[ended]])
        named = {slot: self._episode(slot, result) for slot, result in decisions.results}
        self.returns[ended] = 0
        self.lengths[ended] = 0
        return decisions, list(named.items())

    def _begin_again(self, slots: list[int]) -> dict[int, int]:
        """Forget the present episode of each slot; return the decisions that it had, with the one that failed."""
        had = {slot: int(self.lengths[slot]) for slot in slots}
        self.start[slots] = True
        self.returns[slots] = 0
        self.lengths[slots] = 0
        return had

    def _episode(self, slot: int, result: dict[str, float]) -> Episode:
        """Build an episode's record. A world that reshapes its rewards reports the raw return itself."""
        self._check_result(slot, result)
        others = {k: v for k, v in result.items() if k not in ("return", "length")}
        rewards = tuple(self.returns[slot].tolist())
        return Episode(
            result.get("return", sum(rewards)), result.get("length", float(self.lengths[slot])), rewards, others
        )

    def final_values(self) -> Tensor:
        """Return the critic's value [B, R] of the state where each episode was truncated; other rows are arbitrary."""
        start = None if self.carry is None else torch.zeros(self.arena.slots, dtype=torch.bool)
        noise = torch.zeros(self.arena.slots, noise_size(self.arena.spec.action))
        legal = self.decisions.final_legal if self.decisions.final_legal is not None else self.decisions.legal
        return self.learner.act(_tensors(self.decisions.final), _tensor(legal), noise, self.carry, start).value

    def _check_form(self) -> None:
        """Raise `Mismatch` for arrays that are not as the spec declares; most arenas show the same ones again."""
        check_arrays(self.decisions, self.arena.spec, self.arena.slots)
        self._inputs = self.decisions.inputs

    def _check(self, inputs: tuple[Array, ...], rows: Array) -> None:
        for x, name in zip(inputs, self.names, strict=True):
            _check_finite(x, rows, name)

    def _check_legal(self, rows: Array) -> None:
        legal = self.decisions.legal
        if legal is None:
            return
        some = np.logical_or.reduceat(legal if len(rows) == len(legal) else legal[rows], self.heads, axis=1)
        if not some.all():
            row, head = np.argwhere(~some)[0]
            raise WorldError(f"the legal mask of slot {rows[row]} leaves no choice in head {head} of the action")

    def _check_result(self, slot: int, result: dict[str, float]) -> None:
        for name, value in result.items():
            if not math.isfinite(value):
                raise NotFinite(f"slot {slot} reports the result {name!r}, which is not finite: {value}")
        if self.arena.spec.players > 1 and not 0 <= (won := result.get("win", 0.5)) <= 1:  # `evorl.rl.points`
            raise WorldError(
                f"slot {slot} reports the result 'win' as {won:g}: it is 1 for a win, 0.5 for a draw, 0 for a defeat"
            )
        if self.reported is None:
            for name in result:
                check_name(name)
            self.reported = set(result)
        for name in sorted(self.reported ^ set(result)):
            raise WorldError(
                f"slot {slot} {'reports' if name in result else 'lacks'} the result {name!r}, unlike the episodes "
                "before: every episode of a world has the same names"
            )

    def state_dict(self) -> StateDict:
        return {
            "arena": self.arena.state_dict(),
            "carry": None if self.carry is None else self.carry.clone(),
            "waiting": self.waiting.copy(),
            "start": self.start.copy(),
            "returns": self.returns.copy(),
            "lengths": self.lengths.copy(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.arena.load_state_dict(state["arena"])
        self.wait_for(np.asarray(state["waiting"]))
        self.carry = None if state["carry"] is None else torch.as_tensor(state["carry"]).clone()
        self.start, self.returns, self.lengths = (np.array(state[k]) for k in ("start", "returns", "lengths"))


class Actor:
    """A logical shard of a run's sampling: fills its columns of the run's batch.

    Noise is keyed by slot and decision number, never by arrival, so an irregular world gives the same batch
    in whatever order its slots come to wait.

    A decision whose world failed is no part of the batch, whose next decision takes its place. The one before it is
    the last of its episode, truncated in the state in which the failed one was made.
    """

    def __init__(self, arena: Arena, learner: Learner, seed: int, member: int, batch: Batch) -> None:
        self.player = Player(arena, learner)
        self.seed, self.member, self.batch = seed, member, batch
        self.columns = batch.columns(member)
        self.together = isinstance(arena, StepsTogether)
        self.tied = arena.slots if self.together else arena.sides  # adjacent slots step together
        self.ended = EndedGames(arena.sides)
        self.extra = np.zeros(arena.slots, np.int64)  # decisions of each slot that belong to no batch
        self.taken_back = np.zeros(arena.slots, np.int64)  # decisions of each slot that failed in this batch

    def collect(self, iteration: int) -> tuple[int, list[Episode]]:
        """Collect T decisions of every slot; return the environment steps they took and the episodes that ended.

        A slot that has its T decisions waits with its next one until the following call, unless another side of its
        game (in a `StepsTogether` arena: any slot) needs it to go on. Then it plays on, and those
        decisions belong to no batch.
        """
        player, columns = self.player, self.columns
        noise = self._noise(iteration, *columns.done.shape)
        self.extra[:] = self.taken_back[:] = 0
        columns.begin(player)
        cost = 0
        while (short := columns.short).any():
            rows = np.flatnonzero(player.waiting & short)
            if len(rows):
                at, sel = columns.place(rows)
                decision = player.decide(noise[at] if sel is ALL else columns.at_next(noise))
                columns.put(at, sel, player, decision)
                player.send(rows, decision)
            if self.tied > 1 and len(rows) < len(short):  # a slot may wait for another
                self._play_on(iteration, short)
            decisions, over = player.recv()
            cost += decisions.cost
            answered = columns.answered(decisions.slots)
            if player.broken:
                answered = self._take_back(iteration, noise, answered)
            if len(answered):
                columns.put_outcome(answered, player)
            for slot, episode in over:
                self.ended.add(int(columns.t.min() if self.together else columns.t[slot]), slot, episode)
        # its value bootstraps the batch; most replays need none
        last = player.decide(torch.zeros_like(noise[0])) if columns.bootstraps else None
        columns.close(np.ones_like(columns.closed), player, last)
        return cost, self.ended.take()

    def _noise(self, iteration: int, horizon: int, slots: int) -> Tensor:
        generator = seeds.generator(self.seed, "act", self.member, iteration)
        return torch.from_numpy(draw_noise(self.player.arena.spec.action, generator, (horizon, slots)))

    def _take_back(self, iteration: int, noise: Tensor, rows: Array) -> Array:
        """Take back the failed decisions among those of ``rows``; return the other rows.

        The decision that is made instead has noise of its own. With the same noise, an action that its world cannot
        take would be tried again.
        """
        lost = np.isin(rows, list(self.player.broken))
        failed = rows[lost]
        self.columns.take_back(failed)
        for slot in failed.tolist():
            words = (self.seed, "instead", self.member, iteration, slot, int(self.taken_back[slot]))
            drawn = draw_noise(self.player.arena.spec.action, seeds.generator(*words), ())
            noise[self.columns.t[slot], slot] = torch.from_numpy(drawn)
            self.taken_back[slot] += 1
        return rows[~lost]

    def _play_on(self, iteration: int, short: Array) -> None:
        """Answer the slots that have their T decisions but hold up another slot."""
        player = self.player
        games = short.reshape(-1, self.tied).any(1).repeat(self.tied)
        rows = np.flatnonzero(player.waiting & games & ~short)
        if len(rows) == 0:
            return
        noise = torch.zeros(len(short), noise_size(player.arena.spec.action))
        for slot in rows.tolist():
            words = (self.seed, "play on", self.member, iteration, slot, int(self.extra[slot]))
            noise[slot] = torch.from_numpy(draw_noise(player.arena.spec.action, seeds.generator(*words), ()))
            self.extra[slot] += 1
        decision = player.decide(noise)
        self.columns.pass_over(rows, player, decision)
        player.send(rows, decision)

    def state_dict(self) -> StateDict:
        """Return the state between two collections: the waiting slots and their running episodes."""
        return {**self.player.state_dict(), **self.columns.state_dict(), "ended": self.ended.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        self.player.load_state_dict(state)
        self.ended.load_state_dict(state.get("ended", {}))  # missing in runs of older versions
        self.columns.load_state_dict(state)


def _merged(carry: Tensor, new: Tensor, rows: Array) -> Tensor:
    """Replace rows of a carry [2, B, H]. Returns a copy: inference tensors cannot be written in place."""
    index = torch.from_numpy(rows)
    return carry.index_copy(1, index, new[:, index])


def _tensor(array: Array | None) -> Tensor | None:
    return None if array is None else torch.from_numpy(array)


def _tensors(arrays: tuple[Array, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(x) for x in arrays)


def _check_finite(x: Array, rows: Array, name: str) -> None:
    """Raise `NotFinite` if one of the rows holds a NaN or an infinity."""
    if x.dtype.kind != "f" or np.isfinite(x).all():  # no dot product: NumPy's BLAS slows the policy after it
        return
    for slot in rows:
        if not np.isfinite(x[slot]).all():
            raise NotFinite(f"{name} of slot {slot} is not finite: {x[slot]}")
