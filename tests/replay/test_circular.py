"""The circular buffer: which rollouts each gradient step takes, how often each is taken, and when a step is due."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutating import check_mutation

from evorl.replay.mixture import Mixture, Shares
from evorl.replay.part import Part
from evorl.replay.samplers.circular import Circular, CircularKeys
from evorl.replay.samplers.conformance import encode, toy_rollouts
from evorl.replay.samplers.registry import RolloutSamplers
from evorl.util.errors import BadRequest


def part_of(size: int, room: int, **keys: Any) -> tuple[Part, Circular]:
    """A part for batches of ``size`` in which ``room`` rollouts may wait, and its sampler."""
    options = CircularKeys(capacity=room, **keys)
    rows = options.rows(size, 0)
    sampler = Circular(options, rows, size)
    return Part(sampler, rows, toy_rollouts(0, 1)), sampler


def taken(batches: int, passes: int, size: int, steps: int) -> list[list[int]]:
    """The numbers of the rollouts of each gradient step, where no more arrive than are needed."""
    part, buffer = part_of(size, 2 * size, batches=batches, passes=passes)
    found = []
    for step in range(steps):
        while not buffer.ready(size):
            part.insert(toy_rollouts(part.count, 1), step, 1, encode)
        found.append(part.number[part.sample(size, step, 1, encode)].tolist())
    return found


def test_it_goes_round_its_batches() -> None:
    """Two batches, four passes: the first batch is used once, the second three times, later ones four times."""
    order = [rollouts[0] // 2 for rollouts in taken(2, 4, 2, 16)]
    assert order == [0, 1, 2, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 3, 4, 5]


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_each_batch_is_used_as_often_as_documented(batches: int, passes: int, size: int) -> None:
    steps = 4 * batches * passes
    order = taken(batches, passes, size, steps)
    assert all(one == [*range(one[0], one[0] + size)] and one[0] % size == 0 for one in order)
    when = {number: [step for step, one in enumerate(order) if one[0] == number * size] for number in range(steps)}
    for number, at in when.items():
        assert {*np.diff(at).tolist()} <= {batches}  # once a round
        if at and at[-1] + batches < steps:
            assert len(at) == passes or (number < batches and 1 <= len(at) <= passes)


def check_arrivals(batches: int, passes: int) -> None:
    """New batches are taken evenly: in any 2K gradient steps at most one more than the two of the average."""
    order = [one[0] for one in taken(batches, passes, 1, 5 * batches * passes)]
    fresh = [number not in order[:i] for i, number in enumerate(order)][batches * passes :]
    for first in range(len(fresh) - 2 * passes):
        assert sum(fresh[first : first + 2 * passes]) <= 3


@pytest.mark.parametrize(("batches", "passes"), [(4, 2), (2, 4), (4, 4), (8, 10), (1, 3)])
def test_new_batches_are_taken_evenly(batches: int, passes: int) -> None:
    check_arrivals(batches, passes)


def test_that_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = "np.where(self.entries[spent] < 0, self.first_passes[spent], self.passes)", "self.passes"
    check_mutation(monkeypatch, check_arrivals, (4, 2), Circular._next_batch, old, new)


def test_a_rollout_that_has_left_is_not_used_again() -> None:
    part, buffer = part_of(2, 3, batches=2, passes=9)
    for step in range(2):
        part.insert(toy_rollouts(2 * step, 2), 0, 1, encode)
        assert part.number[part.sample(2, step, 1, encode)].tolist() == [2 * step, 2 * step + 1]
    part.insert(toy_rollouts(4, 6), 0, 1, encode)  # of seven places the first three have left; three may wait
    assert [part.number[part.sample(2, step, 1, encode)].tolist() for step in range(2, 4)] == [[7, 8], [9, 3]]
    assert buffer.dropped == 3


def test_too_few_waiting() -> None:
    part, buffer = part_of(3, 3, batches=1, passes=1)
    part.insert(toy_rollouts(0, 2), 0, 1, encode)
    assert not buffer.ready(3)
    with pytest.raises(ValueError, match="3 rollouts asked of a queue of 2"):
        part.sample(3, 0, 1, encode)


def test_of_another_shape_it_begins_anew() -> None:
    (part, _), (other, buffer) = (part_of(2, 8 - 2 * n, batches=n) for n in (2, 3))
    part.insert(toy_rollouts(0, 4), 0, 1, encode)
    part.sample(2, 0, 1, encode)
    other.load_state_dict(part.state_dict())
    assert other.count == 4 and buffer.waiting == 2 and (buffer.entries == -1).all()


@pytest.mark.parametrize(("share", "due"), [(1.0, [1, 4, 1, 4, 3]), (0.5, [5, 5, 7, 5, 7])])
def test_it_sets_the_pace(share: float, due: list[int]) -> None:
    """Six rollouts arrive at once, and a minibatch has four, of which two or all are of the buffer, each twice."""
    mix = Shares({"uniform": 1 - share, "circular": share}, RolloutSamplers(circular=CircularKeys(batches=2)))
    mixture = Mixture(mix, 4, 6, 0, toy_rollouts(0, 1), 0)
    found = []
    for _ in due:
        mixture.insert(toy_rollouts(mixture.count, 6), 0, encode)
        found.append(0)
        while mixture.due():
            minibatch = mixture.sample(sum(found), encode)
            assert len(minibatch.rollouts["input 0"]) == 4
            found[-1] += 1
    assert found == due


def test_queue_and_circular_exclude_each_other() -> None:
    with pytest.raises(BadRequest, match="queue and circular both") as raised:
        Shares({"queue": 0.5, "circular": 0.5}, RolloutSamplers())
    assert raised.value.key == "sampling"
