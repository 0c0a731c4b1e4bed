"""Distances that are kept for some gradient steps: how old they get, what is encoded, and exact resume."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mutating import check_mutation

from evorl.replay.part import Part
from evorl.replay.rollouts import Array, Columns
from evorl.replay.samplers.attentive import Attentive
from evorl.replay.samplers.conformance import toy_rollouts
from evorl.replay.samplers.elite import Elite
from evorl.replay.samplers.nearest import Nearest, NearestRollouts


class Moving:
    """A network that moves on by 1 with each gradient step, and notes what it encodes."""

    def __init__(self) -> None:
        self.step, self.seen = 0, list[tuple[int, int]]()

    def __call__(self, rollouts: Columns) -> Array:
        self.seen += [(self.step, int(number)) for number in rollouts["input 0"][:, 0]]
        moved: Array = rollouts["features"] + np.float32(self.step)
        return moved


def part_of(**keys: Any) -> tuple[Part, Elite]:
    sampler = Elite(NearestRollouts(candidates=3.0, anneal=10_000, **keys), 10, 2)
    return Part(sampler, 10, toy_rollouts(0, 1)), sampler


def check_age(lag: int, insertion: Any) -> None:
    """Each distance is that of a network at most ``lag`` gradient steps ago, and no rollout is encoded sooner again."""
    (part, elite), network = part_of(lag=lag, insertion=insertion), Moving()
    for step in range(30):
        network.step = step
        if new := 6 if step == 0 else step % 2:
            part.insert(toy_rollouts(part.count, new), step, 1, network)
        drawn = np.arange(part.held)
        steps = elite.recent_distances(part.memory(network), drawn, step) / 12**0.5  # of 12 numbers, each as many off
        assert ((steps > step - lag - 0.01) & (steps < step + 0.01)).all()
        part.sample(2, step, 1, network)
    for number in range(part.count):
        at = [step for step, one in network.seen if one == number]
        assert (np.diff(at) > lag).all() if lag else len(at) == 0 or max(np.diff(at), default=0) <= 1


@pytest.mark.parametrize("insertion", ["ring", "elite"])
@pytest.mark.parametrize("lag", [0, 1, 5])
def test_no_distance_is_older_than_the_lag(lag: int, insertion: str) -> None:
    check_age(lag, insertion)


MUTATIONS: dict[str, tuple[Any, str, str]] = {
    "one step too old": (Nearest._outdated, "> self.keys.lag]", "> self.keys.lag + 1]"),
    "encoded too soon": (Nearest._outdated, "> self.keys.lag]", "> self.keys.lag - 1]"),
    "the time is not noted": (Nearest._measure, "items, step), step", "items, step), 0"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_that_can_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutation(monkeypatch, check_age, (5, "ring"), *MUTATIONS[name])


def test_a_new_rollout_in_an_old_place_is_encoded() -> None:
    (part, elite), network = part_of(lag=100), Moving()
    part.insert(toy_rollouts(0, 10), 0, 1, network)
    elite.recent_distances(part.memory(network), np.arange(10), 0)
    part.insert(toy_rollouts(10, 3), 0, 1, network)
    elite.recent_distances(part.memory(network), np.arange(10), 1)
    assert [number for step, number in network.seen[10:]] == [10, 11, 12]


def test_what_was_prefetched_is_not_encoded_again() -> None:
    """The candidates of step 1 have the distances of the network before step 0, but for those that came since."""
    (part, elite), network = part_of(lag=1), Moving()
    part.insert(toy_rollouts(0, 10), 0, 1, network)
    candidates = elite._candidates(part.memory(network), 1, 1, 2)
    part.prefetch(2, 1, 1, network)
    assert sorted(number for _, number in network.seen) == sorted(candidates)
    part.prefetch(2, 1, 1, network)
    assert len(network.seen) == len(candidates) > 2
    part.insert(toy_rollouts(10, 4), 1, 1, network)
    network.step, network.seen = 1, []
    part.sample(2, 1, 1, network)
    arrived = [place + 10 for place in candidates if place < 4]
    assert sorted(network.seen) == [(1, number) for number in sorted(arrived)]
    assert elite.last_encoded == len(arrived) / len(candidates)


@pytest.mark.parametrize("kind", [Elite, Attentive])
def test_kept_distances_are_resumed(kind: Any) -> None:
    keys, network = NearestRollouts(candidates=3.0, strategy=1, lag=4), Moving()
    part, twin = (Part(kind(keys, 10, 2), 10, toy_rollouts(0, 1)) for _ in range(2))

    def steps(one: Any, first: int, end: int) -> list[list[int]]:
        found = []
        for step in range(first, end):
            network.step = step
            one.insert(toy_rollouts(one.count, 10 if step == 0 else 1), step, 1, network)
            found.append(one.sample(2, step, 1, network).tolist())
        return found

    steps(part, 0, 6)
    twin.load_state_dict(part.state_dict())
    network.seen = []
    assert steps(part, 6, 12) == steps(twin, 6, 12)
    half = len(network.seen) // 2
    assert half and network.seen[:half] == network.seen[half:]
