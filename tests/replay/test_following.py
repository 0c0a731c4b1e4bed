"""A copy of a replay that follows by pieces, against the list of all transitions."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_storage import SPEC, SPECS, Column, Twin, compare, fragment

from evorl.cluster.transport.connection import dumps, loads
from evorl.mdp.core import Spec
from evorl.replay import shared
from evorl.replay.shared import Address, SharedReader, SharedReplay
from evorl.replay.storage import Append, Shape, Storage

KINDS = ("frames", "transitions")


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    horizon=st.integers(1, 4),
    slack=st.integers(20, 60),
    ends=st.sampled_from([0.0, 0.1, 0.6]),
    follows=st.sampled_from([0.1, 0.5, 1.0]),
    piece=st.sampled_from([1, 200, 1 << 20]),
    spec=st.sampled_from(SPECS),
)
def test_a_copy_reads_what_the_writer_has(
    seed: int, horizon: int, slack: int, ends: float, follows: float, piece: int, spec: Spec
) -> None:
    """Also when the ring has wrapped since it followed last, with older readers, and when it begins late."""
    rng, shape = np.random.default_rng(seed), Shape(40, 2, slack)
    columns, replay, twin = [Column(i, rng, ends, spec) for i in range(2)], SharedReplay(spec, shape), Twin()
    reader, known, readers = SharedReader(spec, shape), None, dict[int, int]()
    other = SharedReader(spec, shape)  # of another process of the copy's host
    most = 4 * horizon + 2 * replay.shape.depth
    elsewhere = replay.address(os.getpid())._replace(host="elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "PIECE_BYTES", piece)
        for _ in range(60):
            told = fragment(columns, horizon)
            before = {length: replay.spares(length, 2 * horizon, most) for length in readers}
            replay.append(told[0])
            twin.append(*told)
            readers = {length: one for length, one in readers.items() if before[length]}
            readers[replay.count] = replay.oldest(replay.count)
            if rng.random() < 0.05:
                reader, known = SharedReader(spec, shape), None
            while rng.random() < follows and (found := replay.after(known)) is not None:
                known, piece = found  # perhaps only some of the pieces
                other.locate(os.getpid(), reader.follow(loads(dumps(piece))))
            served = [length for length in readers if known is not None and length <= known.transitions]
            for length in {*served[:1], *served[-1:]}:
                compare(other.storage(elsewhere), twin, readers[length], length, 2)
    assert known is None or known <= replay.position()
    replay.close()


def test_nothing_is_sent_twice_and_no_more_than_the_ring() -> None:
    rng, shape = np.random.default_rng(1), Shape(40, 1, 10)
    columns, replay = [Column(0, rng, 0.1)], SharedReplay(SPEC, shape)
    try:
        assert replay.after(None) is None and replay.position() is None
        for _ in range(50):
            replay.append(fragment(columns, 4)[0])
        found = replay.after(None)
        assert found is not None
        known, piece = found
        rows = {kind: len(next(iter(piece[kind]["rows"].values()))) for kind in KINDS}
        assert known == replay.position() == Append(replay.count, replay.frames)
        assert rows["transitions"] <= shape.rows and rows["frames"] <= shape.frames
        assert replay.after(known) is None
        replay.append(fragment(columns, 4)[0])
        found = replay.after(known)
        assert found is not None
        assert {kind: found[1][kind]["first"] for kind in KINDS} == {"frames": known.frames, "transitions": 200}
    finally:
        replay.close()


def test_an_address_of_another_host_is_not_mapped() -> None:
    replay = SharedReplay(SPEC, Shape(40, 1))
    try:
        here: Address = replay.address(os.getpid())
        reader = SharedReader(SPEC, Shape(40, 1))
        with pytest.raises(OSError, match="lies on another host"):
            reader.storage(here._replace(host="another boot 4026531836 0"))
        with pytest.raises((OSError, ValueError)):
            reader.locate(here.pid, 10_000)
        reader.storage(here)
    finally:
        replay.close()


def test_frames_are_in_a_copy_before_the_transitions_that_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may read the copy at any moment, and finds what is there by the number of transitions."""
    stored, columns = list[str](), [Column(0, np.random.default_rng(0), 0.1, SPEC)]
    for name in KINDS:
        put: Any = getattr(Storage, f"put_{name}")

        def noted(self: Storage, *given: Any, name: str = name, put: Any = put) -> None:
            put(self, *given)
            stored.append(name)

        monkeypatch.setattr(Storage, f"put_{name}", noted)
    replay, reader = SharedReplay(SPEC, Shape(40, 1)), SharedReader(SPEC, Shape(40, 1))
    replay.append(fragment(columns, 8)[0])
    stored.clear()
    found = replay.after(None)
    assert found is not None
    reader.follow(loads(dumps(found[1])))
    assert stored == ["frames", "transitions"]
    replay.close()
