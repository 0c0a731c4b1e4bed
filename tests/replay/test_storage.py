"""The ring of transitions against a slow twin that keeps every transition whole, in a list."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutating import check_notices, mutate

from evorl.mdp.core import Box, Discrete, Input, Spec
from evorl.replay.shared import SharedReader, SharedReplay
from evorl.replay.storage import Fragment, Replay, Shape, Storage

SPEC = Spec((Input("place", (3,)), Input("picture", (1, 2, 2), "uint8")), Discrete(4), rewards=("a", "b"), masked=True)
STACKED = replace(SPEC, inputs=(SPEC.inputs[0], Input("picture", (4, 2, 2), "uint8", stacked=True)))
BOTH = (Input("place", (2, 3), stacked=True), Input("picture", (3, 2), "uint8", stacked=True))
TWO_STACKS = replace(SPEC, inputs=BOTH)
WITHOUT_NUMBERS = replace(SPEC, inputs=(Input("none", (0,)), SPEC.inputs[1]))
SPECS = [SPEC, STACKED, TWO_STACKS, WITHOUT_NUMBERS]
GAMMA = np.array([0.9, 0.5])


class Column:
    """A slot that plays random episodes; every state is unique, so a wrong one shows."""

    def __init__(self, number: int, rng: np.random.Generator, ends: float, spec: Spec = SPEC) -> None:
        self.number, self.rng, self.ends, self.spec = number, rng, ends, spec
        self.state, self.decisions = self.new(), 0

    def new(self) -> tuple[Any, ...]:
        """The first state of an episode."""
        return *(self.draw(one) for one in self.spec.inputs), self.rng.random(4) < 0.7

    def draw(self, one: Input) -> Any:
        shape = one.shape[1:] if one.stacked else one.shape
        new = self.rng.integers(0, 256, shape, np.uint8) if one.dtype == "uint8" else self.rng.random(shape, np.float32)
        return np.stack([new] * one.shape[0]) if one.stacked else new

    def then(self) -> tuple[Any, ...]:
        """A state that follows the present one."""
        *seen, legal = self.new()
        return *(
            np.concatenate([before[1:], new[:1]]) if one.stacked else new
            for one, before, new in zip(self.spec.inputs, self.state, seen, strict=False)
        ), legal

    def decide(self) -> dict[str, Any]:
        state, final = self.state, self.then()
        done = self.rng.random() < self.ends
        terminated = bool(done and self.rng.random() < 0.5)
        self.state = self.new() if done else self.then()
        self.decisions += 1
        return {
            "state": state, "final": final, "action": self.rng.integers(0, 4, 1),
            "reward": self.rng.random(2, np.float32),
            "done": bool(done), "terminated": terminated,
            "next": final if done and not terminated else self.state,
        }  # fmt: skip


def fragment(columns: list[Column], horizon: int) -> tuple[Fragment, list[list[dict[str, Any]]]]:
    first = np.array([one.decisions for one in columns])
    rows = [[one.decide() for one in columns] for _ in range(horizon)]

    def stack(name: str, part: int | None = None) -> Any:
        return np.array([[one[name] if part is None else one[name][part] for one in row] for row in rows])

    states = [np.concatenate([stack("state", i), [[one.state[i] for one in columns]]]) for i in range(3)]
    return Fragment(
        states[:2], states[2], stack("action"), stack("reward"), stack("done"), stack("terminated"),
        [stack("final", 0), stack("final", 1)], stack("final", 2), np.array([one.number for one in columns]), first,
    ), rows  # fmt: skip


class Twin:
    """Every transition of a run, each with the number of the one that follows it in its episode."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self.last: dict[int, tuple[int, int]] = {}

    def append(self, new: Fragment, rows: list[list[dict[str, Any]]]) -> None:
        for t, row in enumerate(rows):
            for b, one in enumerate(row):
                column, decision = int(new.column[b]), int(new.first[b]) + t
                if column in self.last and self.last[column][1] == decision:
                    before = self.all[self.last[column][0]]
                    if not before["done"]:
                        before["following"] = len(self.all)
                self.last[column] = (len(self.all), decision + 1)
                self.all.append(dict(one))

    def read(self, number: int, length: int, steps: int) -> tuple[Any, ...]:
        one = now = self.all[number]
        reward, discount = one["reward"].astype(float), GAMMA.copy()
        for _ in range(1, steps):
            following = now.get("following", length)
            if following >= length:
                break
            now = self.all[following]
            reward, discount = reward + discount * now["reward"], discount * GAMMA
        return one["state"], one["action"], reward, discount * (not now["terminated"]), now["next"], now["terminated"]


def compare(replay: Storage, twin: Twin, oldest: int, length: int, steps: int) -> None:
    """All transitions of these numbers, of which there is one at least; next states only where there are any."""
    assert oldest < length
    read = replay.read(np.arange(oldest, length), length, GAMMA, steps)
    assert [x.dtype for x in read.inputs] == [one.dtype for one in replay.spec.inputs]
    assert read.legal is not None and read.next_legal is not None
    rows = [twin.read(number, length, steps) for number in range(oldest, length)]
    state, action, reward, discount, following, terminated = zip(*rows, strict=True)
    for found, expected in zip((*read.inputs, read.legal), zip(*state, strict=True), strict=True):
        np.testing.assert_array_equal(found, np.stack(expected))
    np.testing.assert_array_equal(read.action, np.stack(action))
    np.testing.assert_allclose(read.reward, np.stack(reward), rtol=1e-6)
    np.testing.assert_allclose(read.discount, np.stack(discount), rtol=1e-6)
    on = ~np.array(terminated)
    for found, expected in zip((*read.next_inputs, read.next_legal), zip(*following, strict=True), strict=True):
        np.testing.assert_array_equal(found[on], np.stack(expected)[on])


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    horizon=st.integers(1, 5),
    members=st.integers(1, 3),
    slots=st.integers(1, 3),
    together=st.booleans(),
    ends=st.sampled_from([0.0, 0.1, 0.6]),
    capacity=st.integers(90, 160),
    spec=st.sampled_from(SPECS),
    compress=st.booleans(),
)
def test_it_reads_what_a_list_of_transitions_holds(
    seed: int, horizon: int, members: int, slots: int, together: bool, ends: float, capacity: int, spec: Spec,
    compress: bool,
) -> None:  # fmt: skip
    check_ring(seed, horizon, members, slots, together, ends, capacity, spec, compress)


def check_ring(
    seed: int, horizon: int, members: int, slots: int, together: bool, ends: float, capacity: int, spec: Spec = SPEC,
    compress: bool = False,
) -> None:  # fmt: skip
    """Members append in any order; some fragments are lost; now and then the run is resumed."""
    rng = np.random.default_rng(seed)
    columns = [Column(i, rng, ends, spec) for i in range(members * slots)]
    replay, twin = Replay(spec, Shape(capacity, len(columns)), compress=compress), Twin()
    for _ in range(30):
        member = int(rng.integers(members))
        some = columns if together else columns[member * slots : (member + 1) * slots]
        if rng.random() < 0.1:
            fragment(some, horizon)  # one that is never told
        if rng.random() < 0.1:
            replay = restored(replay, len(columns), compress=bool(rng.random() < 0.5))
        told = fragment(some, horizon)
        replay.append(told[0])
        twin.append(*told)
        steps = int(rng.integers(1, 4))
        compare(replay, twin, replay.oldest(replay.count), replay.count, steps)
    assert replay.count == len(twin.all)


def restored(replay: Replay, columns: int, compress: bool = False, capacity: int | None = None) -> Replay:
    other = Replay(replay.spec, Shape(capacity or replay.capacity, columns), compress=compress)
    other.load_state_dict(replay.state_dict())
    return other


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    horizon=st.integers(1, 4),
    ends=st.sampled_from([0.0, 0.1, 0.6]),
    spec=st.sampled_from(SPECS),
)
def test_a_ring_of_another_shape_reads_only_what_was_saved(seed: int, horizon: int, ends: float, spec: Spec) -> None:
    """As of a child with another rl.slots or rl.capacity than its parent, whose own child has again other ones."""
    rng, twin = np.random.default_rng(seed), Twin()
    columns = [Column(i, rng, ends, spec) for i in range(2)]
    replay = Replay(spec, Shape(80, 2))
    for number in range(1, 30):
        if rng.random() < 0.2:
            for _ in range(int(rng.integers(1, 3))):
                columns = [Column(i, rng, ends, spec) for i in range(int(rng.integers(1, 7)))]
                replay = restored(replay, len(columns), capacity=int(rng.integers(60, 160)))
            for column in columns:
                column.decisions = 1000 * number  # no episode goes on
            if replay.count:
                compare(replay, twin, replay.oldest(replay.count), replay.count, int(rng.integers(1, 4)))
        told = fragment(columns, horizon)
        replay.append(told[0])
        twin.append(*told)
        compare(replay, twin, replay.oldest(replay.count), replay.count, int(rng.integers(1, 4)))


@pytest.mark.parametrize("generations", [1, 2])
@pytest.mark.parametrize("spec", SPECS)
def test_a_slot_that_was_silent_goes_on_in_a_much_larger_ring(spec: Spec, generations: int) -> None:
    """The frame that it goes on from was overwritten before the state was saved, and lies within the larger ring."""
    rng, twin = np.random.default_rng(5), Twin()
    silent, other = (Column(i, rng, 0.1, spec) for i in range(2))
    replay = Replay(spec, Shape(60, 2))
    for column in (silent, *[other] * 30, silent):
        for _ in range(generations if column is silent and twin.all else 0):
            replay = restored(replay, 2, capacity=6000)
        told = fragment([column], 4)
        replay.append(told[0])
        twin.append(*told)
    compare(replay, twin, replay.oldest(replay.count), replay.count, 3)


def test_a_shorter_length_reads_what_it_was_then() -> None:
    rng = np.random.default_rng(3)
    columns = [Column(i, rng, 0.1) for i in range(2)]
    replay, twin, then = Replay(SPEC, Shape(400, 2)), Twin(), Twin()
    for i in range(20):
        told = fragment(columns, 4)
        replay.append(told[0])
        twin.append(*told)
        if i < 10:
            then.append(*told)
    compare(replay, then, replay.oldest(len(then.all)), len(then.all), 3)
    compare(replay, twin, replay.oldest(len(twin.all)), len(twin.all), 3)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    horizon=st.integers(1, 4),
    slack=st.integers(0, 60),
    ends=st.sampled_from([0.0, 0.1, 0.6]),
    again=st.booleans(),
    spec=st.sampled_from(SPECS),
)
def test_readers_in_shared_memory_see_what_was_there_when_they_began(
    seed: int, horizon: int, slack: int, ends: float, again: bool, spec: Spec
) -> None:
    """A reader of an older length reads the same as long as the writer may append, also in a resumed run."""
    check_readers(seed, horizon, slack, ends, again, spec)


def check_readers(seed: int, horizon: int, slack: int, ends: float, again: bool, spec: Spec = SPEC) -> None:
    rng = np.random.default_rng(seed)
    columns, shape = [Column(i, rng, ends, spec) for i in range(2)], Shape(40, 2, slack)
    replay, twin, held = SharedReplay(spec, shape), Twin(), 0
    most = 4 * horizon + 2 * replay.shape.depth  # frames of a fragment
    try:
        readers: dict[int, int] = {}  # by length: the oldest number
        reader = SharedReader(spec, shape).storage(replay.address(os.getpid()))
        for _ in range(40):
            told = fragment(columns, horizon)
            frames = replay.frames
            before = {length: replay.spares(length, 2 * horizon, most) for length in readers}
            replay.append(told[0])
            assert replay.frames - frames <= most
            twin.append(*told)
            readers = {length: one for length, one in readers.items() if before[length]}
            if again and len(twin.all) > 60:
                other = SharedReplay(spec, shape)
                other.load_state_dict(replay.state_dict())
                replay.close()
                replay, again = other, False
                reader = SharedReader(spec, shape).storage(replay.address(os.getpid()))
            readers[replay.count] = replay.oldest(replay.count)
            for length, oldest in readers.items():
                compare(reader, twin, oldest, length, 2)
            held = max(held, len(readers))
        assert held > 2 or slack < 3 * most
    finally:
        replay.close()


def test_a_reader_sees_what_was_there_when_it_began() -> None:
    check_readers(*READERS)


def test_observations_are_stored_once() -> None:
    """One frame for each transition, one more for each slot at the start and for each episode that is truncated."""
    rng = np.random.default_rng(1)
    columns = [Column(i, rng, 0.2) for i in range(3)]
    replay, cut = Replay(SPEC, Shape(1000, 3)), 0
    for _ in range(40):
        new, _ = fragment(columns, 2)
        replay.append(new)
        cut += int((new.done & ~new.terminated).sum())
    assert replay.frames == replay.count + 3 + cut


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("horizon", [1, 8])
def test_the_ring_holds_its_capacity(horizon: int, together: bool) -> None:
    """Also where members come in any order."""
    rng = np.random.default_rng(1)
    columns = [Column(i, rng, 0.02) for i in range(6)]
    replay = Replay(SPEC, Shape(1000, 6))
    for _ in range(2000 // horizon):
        member = int(rng.integers(3))
        replay.append(fragment(columns if together else columns[2 * member : 2 * member + 2], horizon)[0])
    assert replay.oldest(replay.count) == replay.count - 1000 and replay.frames < 1.1 * replay.count


def test_a_fragment_larger_than_half_the_ring_is_refused() -> None:
    columns = [Column(i, np.random.default_rng(1), 0.0) for i in range(4)]
    replay = Replay(SPEC, Shape(40, 4))
    with pytest.raises(ValueError, match="a fragment of 24 transitions is too large for a replay of 40"):
        replay.append(fragment(columns, 6)[0])
    assert replay.count == replay.frames == 0


def test_box_actions_keep_their_dtype() -> None:
    replay = Replay(Spec((Input("x", (1,)),), Box((-1.0, -2.0), (1.0, 2.0))), Shape(8, 1))
    assert replay.action.dtype == np.float32 and replay.action.shape == (8, 2)


# ------------------------------------------------------------------ the checks can fail

RING = (3, 3, 2, 2, False, 0.1, 90)  # arguments of `check_ring`
CUT = (7, 3, 2, 2, True, 0.6, 90)
READERS = (7, 2, 40, 0.6, True)  # and of `check_readers`
MUTATIONS: dict[str, tuple[Any, tuple[Any, ...], Any, str, str]] = {
    "across episodes": (check_ring, RING, Replay.append, "np.where(new.done[:-1], NONE, number[:-1])", "number[:-1]"),
    "across fragments": (check_ring, RING, Replay.append, "np.where(new.done[-1], NONE, number[-1])", "number[-1]"),
    "across a lost fragment": (check_ring, RING, Replay.append, "& (self.decisions[column] == new.first)", ""),
    "terminated taken for truncated": (
        check_ring, RING, Storage.read, "np.where(self.terminated[last][:, None], 0, discount)", "discount"),
    "truncated taken for terminated": (
        check_ring, RING, Replay.append, "= new.terminated.reshape(-1)", "= new.done.reshape(-1)"),
    "the next episode's first state after a cut": (
        check_ring, RING, Replay._put_states, "after[cut] =", "after[:0][cut[:0]] ="),
    "one discount for all steps": (
        check_ring, RING, Storage.read, "discount * gamma, discount", "discount, discount"),
    "frames that are overwritten": (
        check_ring, CUT, Replay.oldest, "self.capacity, start, ", "self.capacity, 0, "),
    "links forgotten by a resumed run": (
        check_ring, (7, *RING[1:]), Storage.put_transitions, "self.link(numbers, count)", "pass"),
    "rewards of later transitions": (check_readers, READERS, Storage.read, "& (following < length)", ""),
    "a writer that never waits": (check_readers, READERS, Replay.spares, "more <= self.shape.slack", "True"),
    "slack not counted": (check_readers, READERS, Replay.spares, "self.frames + frames - then", "0"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, args, function, old, new = MUTATIONS[name]
    check(*args)
    mutate(monkeypatch, function, old, new)
    check_notices(check, *args)
