"""A ring of transitions in preallocated arrays.

Transitions have numbers: their places in the order in which they were appended. The ring keeps the newest
``capacity`` of them. What a number stands for never changes, so whoever knows a length reads the same transitions.

Observations are stored once, as *frames*, in their own dtype. A transition names two frames: the one that the action
was chosen in and the one that followed. Within an episode the second is the next transition's first. An episode that
was truncated has one more frame, the observation that it was cut at.

Of a stack of frames (`Input.stacked`) only the newest one is stored. Each frame names the frame before it in its
episode, the first one itself. So a stack is read by following these names, and reaches across fragments.

Letters in shapes: T decisions of a slot in a fragment, B slots, N transitions, R named rewards, K action components,
D frames of the deepest stack.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.mdp.core import Box, Spec, heads
from evorl.mdp.stacks import check_stacks, depth
from evorl.replay.packed import Packed
from evorl.replay.restored import Restored
from evorl.util.saved import restore, saved
from evorl.util.types import AppendedRows, StateDict

Array = NDArray[Any]
Zeros = Callable[[tuple[int, ...], np.dtype[Any]], Array]
Numbers = NDArray[np.int64]

NONE = -1


class Fragment(NamedTuple):
    """T decisions of each of B slots, as a replay receives them."""

    inputs: Sequence[Array]  # each [T+1, B, ...]; the last row is the state after the last decision
    legal: Array | None  # bool [T+1, B, L]
    action: Array  # [T, B, K]
    reward: Array  # [T, B, R]
    done: Array  # bool [T, B]: the episode ended
    terminated: Array  # bool [T, B]: it ended in a terminal state
    final_inputs: Sequence[Array]  # each [T, B, ...]: where truncated, the state that the episode was cut at
    final_legal: Array | None  # bool [T, B, L]
    column: Array  # int64 [B]: which slot of the run
    first: Array  # int64 [B]: decisions that the slot had made before
    carry: Array | None = None  # [T, B, 2, H] state of the recurrent core before each decision


class Transitions(NamedTuple):
    """Transitions to learn from. With n-step returns, "next" is the state after the last reward that counts."""

    inputs: tuple[Array, ...]  # each [N, ...]
    legal: Array | None  # bool [N, L]
    action: Array  # [N, K]
    reward: Array  # [N, R], discounted and summed over the steps
    discount: Array  # [N, R]: of the next state's value; 0 after a termination
    next_inputs: tuple[Array, ...]
    next_legal: Array | None


class Append(NamedTuple):
    """Totals after an append, which say what a reader of that length may see."""

    transitions: int
    frames: int


class Shape(NamedTuple):
    """The size of a ring: everything that decides the layout of its arrays, beside the `Spec`."""

    capacity: int  # transitions
    columns: int  # slots of all members; each fragment continues some of them
    slack: int = 0  # transitions that may be appended while a reader of an older length still reads
    depth: int = 1  # frames of a state; a ring takes it from its `Spec`
    lstm: int = 0  # width of the recurrent core whose state is stored; 0: none is

    @property
    def rows(self) -> int:
        """Transitions that there is room for."""
        return self.capacity + self.slack

    @property
    def shared(self) -> int:
        """A fragment shares its first frames if they are among so many newest ones."""
        return self.capacity // 16 + self.depth * self.columns

    @property
    def frames(self) -> int:
        """Frames that there is room for."""
        return self.rows + 2 * self.shared


class Storage:
    """The arrays of a ring, which many processes may read."""

    def __init__(self, spec: Spec, shape: Shape, zeros: Zeros = np.zeros, compress: bool = False) -> None:
        """``zeros``: makes the arrays, or finds them in memory that another process writes. ``compress``: keep inputs
        of bytes compressed, in memory of this process."""
        self.spec, self.shape = spec, shape._replace(depth=depth(spec.inputs))
        room, rows = self.shape.frames, self.shape.rows
        frames = [(x.shape[1:] if x.stacked else x.shape, np.dtype(x.dtype)) for x in spec.inputs]
        self.inputs: tuple[Array | Packed, ...] = tuple(
            (Packed if compress and dtype == np.uint8 else zeros)((room, *frame), dtype) for frame, dtype in frames
        )
        self.earlier = zeros((room,), np.dtype("i8")) if self.shape.depth > 1 else None  # number of the frame before
        self.legal = zeros((room, sum(heads(spec.action))), np.dtype(bool)) if spec.masked else None
        size, dtype = (len(spec.action.low), "f4") if isinstance(spec.action, Box) else (len(heads(spec.action)), "i8")
        self.action = zeros((rows, size), np.dtype(dtype))
        self.reward = zeros((rows, len(spec.rewards)), np.dtype("f4"))
        self.terminated = zeros((rows,), np.dtype(bool))
        self.frame = zeros((rows,), np.dtype("i8"))
        self.next_frame = zeros((rows,), np.dtype("i8"))
        self.previous = zeros((rows,), np.dtype("i8"))  # number of the transition before, in the same episode
        self.following = zeros((rows,), np.dtype("i8"))  # derived from `previous`
        self.carry = zeros((rows, 2, shape.lstm), np.dtype("f4")) if shape.lstm else None
        self.stored = _STORED if self.carry is None else (*_STORED, "carry")  # names of the arrays of transitions

    def states(self, numbers: Numbers) -> tuple[Array, ...]:
        """Return the inputs, each [N, ...], that the transitions [N] of these numbers began in."""
        return self.seen(self.frame[numbers % self.shape.rows])

    def seen(self, frames: Numbers) -> tuple[Array, ...]:
        """Return the inputs, each ``[..., *]``, of the states whose newest frames have these numbers [...]."""
        stacks = self.stacks(frames) % self.shape.frames
        return tuple(
            store.take(stacks[..., -x.shape[0] :] if x.stacked else stacks[..., -1], 0)
            for x, store in zip(self.spec.inputs, self.inputs, strict=True)
        )

    def stacks(self, frames: Numbers) -> Numbers:
        """Return the numbers of the newest D frames [..., D], oldest first, of states by their newest ones [...]."""
        stack = [frames]
        if self.earlier is not None:
            for _ in range(self.shape.depth - 1):
                stack.append(self.earlier[stack[-1] % self.shape.frames])
        return np.stack(stack[::-1], -1)

    def read(self, numbers: Numbers, length: int, gamma: Array, steps: int = 1) -> Transitions:
        """Return the transitions [N] of these numbers as they were when ``length`` transitions existed.

        ``steps`` is n of n-step returns: rewards of up to n transitions of the same episode count, each discounted by
        ``gamma`` [R] per step.
        """
        at = numbers % self.shape.rows
        reward, discount, last = self.reward[at], np.broadcast_to(gamma, (len(at), len(gamma))), at
        for _ in range(1, steps):
            following = self.following[last]
            more = (following != NONE) & (following < length)
            then = np.where(more, following % self.shape.rows, last)
            reward = reward + np.where(more[:, None], discount * self.reward[then], 0)
            discount = np.where(more[:, None], discount * gamma, discount)
            last = then
        before, after = self.frame[at], self.next_frame[last]
        return Transitions(
            self.seen(before),
            None if self.legal is None else self.legal[before % self.shape.frames],
            self.action[at],
            reward.astype(np.float32),
            np.where(self.terminated[last][:, None], 0, discount).astype(np.float32),
            self.seen(after),
            None if self.legal is None else self.legal[after % self.shape.frames],
        )

    def frame_stores(self) -> tuple[Array | Packed, ...]:
        """The arrays of frames."""
        return (*self.inputs, *(x for x in (self.legal, self.earlier) if x is not None))

    def put_frames(self, first: int, rows: Sequence[Array]) -> None:
        """Store frames with the numbers ``first`` onwards, for each array of `frame_stores`."""
        at = (first + np.arange(len(rows[0]))) % self.shape.frames
        for store, x in zip(self.frame_stores(), rows, strict=True):
            store[at] = x

    def put_transitions(self, first: int, rows: Mapping[str, Array], count: int) -> None:
        """Store the transitions ``first`` onwards of ``count`` that exist, by name of their arrays."""
        numbers = first + np.arange(len(rows["previous"]))
        for name, x in rows.items():
            getattr(self, name)[numbers % self.shape.rows] = x
        self.link(numbers, count)

    def link(self, numbers: Numbers, count: int) -> None:
        """Derive `following` from the ``previous`` of these transitions, of ``count`` that exist."""
        self.following[numbers % self.shape.rows] = NONE
        before = self.previous[numbers % self.shape.rows]
        linked = (before != NONE) & (before >= count - self.shape.rows)
        self.following[before[linked] % self.shape.rows] = numbers[linked]


class Replay(Storage):
    """The newest ``capacity`` transitions of a run.

    There is room for a sixteenth more frames. Where more episodes than that are truncated, the ring holds fewer
    transitions.
    """

    def __init__(self, spec: Spec, shape: Shape, zeros: Zeros = np.zeros, compress: bool = False) -> None:
        super().__init__(spec, shape, zeros, compress)
        self.previous.fill(NONE)
        self.following.fill(NONE)
        self.capacity, columns = shape.capacity, shape.columns
        self.count = 0  # transitions appended so far
        self.frames = 0  # frames appended so far
        self.appends: list[Append] = []
        self.restored = Restored()
        self.last = np.full(columns, NONE)  # of each column: its newest transition, if its episode goes on
        self.last_frame = np.full(columns, NONE)  # and the frame that followed
        self.decisions = np.zeros(columns, np.int64)  # and the decisions that it had made by then

    # -------------------------------------------------------------- writing

    def append(self, new: Fragment) -> None:
        """Append the T * B transitions of a fragment, row after row. Raises ValueError for one that is too large, and
        `WorldError` for stacks of frames that are none."""
        horizon, slots = new.done.shape
        size, column = horizon * slots, new.column
        if size > self.capacity // 2:
            raise ValueError(f"a fragment of {size} transitions is too large for a replay of {self.capacity}")
        number = self.count + np.arange(size).reshape(horizon, slots)

        # A column continues its episode unless some of its decisions are missing in between.
        gapless = (self.last_frame[column] != NONE) & (self.decisions[column] == new.first)
        continues = gapless & (self.last[column] != NONE)
        previous = np.empty((horizon, slots), np.int64)
        previous[0] = np.where(continues, self.last[column], NONE)
        previous[1:] = np.where(new.done[:-1], NONE, number[:-1])

        place, after = self._put_states(new, gapless)
        at = number.reshape(-1) % self.shape.rows
        self.action[at] = new.action.reshape(size, -1)
        self.reward[at] = new.reward.reshape(size, -1)
        self.terminated[at] = new.terminated.reshape(-1)
        self.frame[at], self.next_frame[at] = place[:-1].reshape(-1), after.reshape(-1)
        self.previous[at] = previous.reshape(-1)
        if self.carry is not None and new.carry is not None:
            self.carry[at] = new.carry.reshape(size, *self.carry.shape[1:])
        self.count += size
        self.link(number.reshape(-1), self.count)
        self.appends.append(Append(self.count, self.frames))
        self.last[column] = np.where(new.done[-1], NONE, number[-1])
        self.last_frame[column], self.decisions[column] = place[-1], new.first + horizon
        self._forget()

    def _put_states(self, new: Fragment, gapless: Array) -> tuple[Numbers, Numbers]:
        """Store a fragment's frames. Return the number of the newest frame of each of its states [T+1, B], and of the
        states that followed its decisions [T, B]."""
        cut = new.done & ~new.terminated
        self._check(new, cut)
        states = (*new.inputs, *(() if new.legal is None else (new.legal,)))
        finals = (*new.final_inputs, *(() if new.final_legal is None else (new.final_legal,)))
        place = np.empty((len(new.done) + 1, len(new.column)), np.int64)
        place[0] = self.last_frame[new.column]
        # A first state is there if its whole stack is; else all frames of its stack are stored.
        oldest = self.stacks(place[0]).min(-1)
        fresh = ~gapless | (oldest < max(self.frames - self.shape.shared, self.restored.held))
        place[0, fresh] = NONE
        for back in reversed(range(self.shape.depth)):
            place[0, fresh] = self._add([x[0, fresh] for x in states], place[0, fresh], back)
        place[1:] = self.frames + np.arange(new.done.size).reshape(new.done.shape)
        earlier = np.where(new.done, NONE, place[:-1])
        self._add([x[1:].reshape(new.done.size, *x.shape[2:]) for x in states], earlier.reshape(-1))
        after = place[1:].copy()
        after[cut] = self._add([x[cut] for x in finals], place[:-1][cut])
        return place, after

    def _add(self, states: Sequence[Array], earlier: Numbers, back: int = 0) -> Numbers:
        """Store a frame of each of N states, each array [N, ...]: of stacks the newest one, or ``back`` before it.
        Return their numbers [N]; ``earlier`` [N] are those of the frames before, NONE for a first one."""
        numbers = self.frames + np.arange(len(earlier))
        frames = [
            state[:, max(x.shape[0] - 1 - back, 0)] if x.stacked else state
            for x, state in zip(self.spec.inputs, states, strict=False)
        ]
        names = () if self.earlier is None else (np.where(earlier == NONE, numbers, earlier),)
        self.put_frames(self.frames, [*frames, *states[len(frames) :], *names])
        self.frames += len(numbers)
        return numbers

    def _check(self, new: Fragment, cut: Array) -> None:
        """Raise `WorldError` where a state is not the stack of frames that would be read."""
        on = np.zeros(np.count_nonzero(cut), bool)
        for x, states, final in zip(self.spec.inputs, new.inputs, new.final_inputs, strict=True):
            if x.stacked:
                before, after = (part.reshape(new.done.size, *part.shape[2:]) for part in (states[:-1], states[1:]))
                check_stacks(x, before, after, new.done.reshape(-1))
                check_stacks(x, states[:-1][cut], final[cut], on)

    def _forget(self) -> None:
        """Drop the records of appends that no present reader needs."""
        oldest = self._oldest_of_all()
        keep = bisect_right(self.appends, oldest, key=lambda append: append.transitions)
        del self.appends[: max(keep - 1, 0)]

    # -------------------------------------------------------------- what readers may see

    def _oldest_of_all(self) -> int:
        """The oldest number that a reader of any length within the slack may name."""
        return self.oldest(max(self.count - self.shape.slack, self.appends[0].transitions))

    def spares(self, length: int, transitions: int, frames: int) -> bool:
        """Whether a reader of this length may go on reading while so many transitions and frames are appended."""
        at = bisect_left(self.appends, length, key=lambda append: append.transitions)
        then = self.appends[at].frames if at < len(self.appends) else self.frames
        more = max(self.count + transitions - length, self.frames + frames - then)
        return more <= self.shape.slack

    def oldest(self, length: int) -> int:
        """The oldest number that a reader of this length may name: of a transition whose frames are still there.

        Frames by number; while the reader reads, ``slack`` more overwrite what is oldest in the ring::

            0               low            limit                           newest.frames
            |  overwritten   |    shared     |                                   |   slack   |
                             |<------------------- room: `Shape.frames` -------------------->|
            | append | append |   before  |    partial   |  append  |  append  |  newest  |
                                                ^ start

        An append names no frames but its own and the ``shared`` ones before it. So those that begin at the limit or
        later are whole. Of the one that begins before it, the first transitions are lost.
        """
        newest = self.appends[bisect_left(self.appends, length, key=lambda append: append.transitions)]
        low = newest.frames + self.shape.slack - self.shape.frames
        limit = low + self.shape.shared
        partial = bisect_left(self.appends, limit, key=lambda append: append.frames)
        before = self.appends[partial - 1] if partial else Append(0, 0)
        # A row's frames are at most D + 1 rows older than its place in the append; a row has at most all columns.
        missing = limit - before.frames + self.shape.depth * len(self.last) if limit > before.frames else 0
        start = min(before.transitions + missing, self.appends[partial].transitions)
        return max(length - self.capacity, start, self.restored.oldest(low))

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        """Return what the ring holds, in order, and what later appends need."""
        return {
            "count": self.count, "frames": self.frames, "appends": np.array(self.appends, np.int64).reshape(-1, 2),
            "columns": saved(self, _COLUMNS),
            **self.appended_rows(),
        }  # fmt: skip

    def appended_rows(self) -> StateDict:
        """Return the part of the state that only grows."""
        frames, transitions = self.held()
        return {"states": frames, "transitions": transitions}

    def held(self) -> tuple[AppendedRows, AppendedRows]:
        """The frames, by number of their array, and the transitions, by name, that present readers may need."""
        low = self._oldest_of_all() if self.count else 0
        first = max(self.frames - self.shape.frames, self.restored.held)
        frames = AppendedRows(first, self.frames, self._read_states)
        return frames, AppendedRows(low, self.count, self._read_transitions)

    def _read_states(self, first: int, end: int) -> dict[str, Array]:
        at = np.arange(first, end) % self.shape.frames
        return {str(i): x.take(at, 0) for i, x in enumerate(self.frame_stores())}

    def _read_transitions(self, first: int, end: int) -> dict[str, Array]:
        at = np.arange(first, end) % self.shape.rows
        return {name: getattr(self, name)[at] for name in self.stored}

    def load_state_dict(self, state: StateDict) -> None:
        self.count, self.frames = state["count"], state["frames"]
        self.appends = [Append(*totals) for totals in np.asarray(state["appends"]).tolist()]
        states, transitions = (
            part.whole() if isinstance(part, AppendedRows) else part for part in (state["states"], state["transitions"])
        )
        self.put_frames(states["first"], by_number(states["rows"]))
        self.put_transitions(transitions["first"], transitions["rows"], self.count)
        if len(state["columns"]["last"]) == len(self.last):  # else another number of slots: no episode continues
            restore(self, _COLUMNS, state["columns"])
        at = np.arange(transitions["first"], self.count) % self.shape.rows
        named = np.concatenate([self.stacks(self.frame[at]), self.stacks(self.next_frame[at])], -1)
        self.restored = Restored(transitions["first"], named.min(-1), states["first"])


def by_number(rows: Mapping[str, Array]) -> list[Array]:
    """The arrays of frames, whose names are their numbers, in order."""
    return [rows[str(i)] for i in range(len(rows))]


_STORED = ("action", "reward", "terminated", "frame", "next_frame", "previous")
_COLUMNS = ("last", "last_frame", "decisions")
