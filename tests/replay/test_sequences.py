"""Sequences of a ring against a slow walk over a list of transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutating import check_notices, mutate
from test_storage import GAMMA, SPEC, Column, Twin, fragment

from evorl.replay import sequences
from evorl.replay.sequences import Extent, Sequences, read_sequences
from evorl.replay.storage import Replay, Shape

EXTENTS = [Extent(0, 1, 1), Extent(3, 4, 1), Extent(2, 5, 3), Extent(6, 2, 4)]


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6), horizon=st.integers(1, 5), members=st.integers(1, 3), ends=st.sampled_from([0.05, 0.3]),
    capacity=st.integers(90, 160), extent=st.sampled_from(EXTENTS),
)  # fmt: skip
def test_a_sequence_is_what_a_walk_over_its_episode_finds(
    seed: int, horizon: int, members: int, ends: float, capacity: int, extent: Extent
) -> None:
    check_sequences(seed, horizon, members, ends, capacity, extent)


def check_sequences(seed: int, horizon: int, members: int, ends: float, capacity: int, extent: Extent) -> None:
    """Members append in any order, some fragments are lost, and the run is resumed once."""
    rng = np.random.default_rng(seed)
    columns = [Column(i, rng, ends) for i in range(2 * members)]
    shape = Shape(capacity, len(columns), slack=20, lstm=3)
    replay, twin = Replay(SPEC, shape), Twin()
    for turn in range(30):
        member = int(rng.integers(members))
        some = columns[2 * member : 2 * member + 2]
        if rng.random() < 0.1:
            fragment(some, horizon)  # one that is never told
        new, rows = fragment(some, horizon)
        carry = rng.random((horizon, 2, 2, 3), np.float32)
        replay.append(new._replace(carry=carry))
        for row, states in zip(rows, carry, strict=True):
            for one, state in zip(row, states, strict=True):
                one["carry"] = state
        twin.append(new, rows)
        if turn == 20:
            state, replay = replay.state_dict(), Replay(SPEC, shape)
            replay.load_state_dict(state)
    for length in (replay.count, replay.count - 2 * horizon):  # now, and before the last fragment
        check_reading(replay, twin, length, extent)


def check_reading(replay: Replay, twin: Twin, length: int, extent: Extent) -> None:
    oldest = replay.oldest(length)
    numbers = np.arange(oldest, length)
    found = read_sequences(replay, numbers, oldest, length, GAMMA, extent)
    previous = {one["following"]: i for i, one in enumerate(twin.all) if "following" in one}
    for i, number in enumerate(numbers.tolist()):
        compare(found, i, twin, previous, number, oldest, length, extent)


def compare(
    found: Sequences,
    i: int,
    twin: Twin,
    previous: dict[int, int],
    number: int,
    oldest: int,
    length: int,
    extent: Extent,
) -> None:
    before, path = [number], [number]
    while len(before) <= extent.prefix and previous.get(before[0], -1) >= oldest:
        before.insert(0, previous[before[0]])
    most = extent.decisions + extent.steps - 1
    while len(path) < most and twin.all[path[-1]].get("following", length) < length:
        path.append(twin.all[path[-1]]["following"])
    assert found.prefix[i] == len(before) - 1
    np.testing.assert_array_equal(found.carry[:, i], twin.all[before[0]]["carry"])
    for back, one in enumerate(reversed(before)):
        same_state(found, extent.prefix - back, i, twin.all[one]["state"])
    for t in range(extent.decisions):
        assert found.exists[t, i] == (t < len(path))
        if t >= len(path):
            continue
        steps = [twin.all[one] for one in path[t : t + extent.steps]]
        assert found.numbers[t, i] == path[t] and found.ahead[t, i] == t + len(steps)
        np.testing.assert_array_equal(found.action[t, i], steps[0]["action"])
        reward = sum(GAMMA**k * one["reward"] for k, one in enumerate(steps))
        np.testing.assert_allclose(found.reward[t, i], reward, rtol=1e-6)
        discount = GAMMA ** len(steps) * (not steps[-1]["terminated"])
        np.testing.assert_allclose(found.discount[t, i], discount, rtol=1e-6)
        same_state(found, extent.prefix + t, i, steps[0]["state"])
        if not steps[-1]["terminated"]:
            same_state(found, extent.prefix + t + len(steps), i, steps[-1]["next"])
            assert found.legal is not None
            np.testing.assert_array_equal(found.legal[t + len(steps), i], steps[-1]["next"][2])


def same_state(found: Sequences, s: int, i: int, state: Any) -> None:
    for x, expected in zip(found.inputs, state[:2], strict=True):
        np.testing.assert_array_equal(x[s, i], expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("before >= oldest, before,", "before >= 0, before,"),
        ("& (following < length)", ""),
        ("(following != NONE) &", ""),
        ("storage.next_frame[at]])", "storage.frame[at]])"),
        ("terminated[at[n - 1 :]]", "terminated[at[: shape[0]]]"),
        ("more = exists[then]", "more = exists[then] | True"),
    ],
)
def test_each_mutation_is_noticed(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, sequences.read_sequences, old, new)

    def several() -> None:
        for seed in range(3):
            check_sequences(seed, 3, 2, 0.1, 100, EXTENTS[2])

    check_notices(several)
