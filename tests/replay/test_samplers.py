"""Samplers of transitions: one conformance check for all. That of replays of rollouts is in test_rollout_parts.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mutating import check_notices, mutate

from evorl.replay.attentive import AttentiveKeys, attentive
from evorl.replay.conformance import TransitionSampler, check
from evorl.replay.prioritized import Priorities
from evorl.replay.storage import Numbers, Replay
from evorl.replay.uniform import uniform


class Uniform(TransitionSampler):
    def draw(self, key: int, step: int, size: int, ring: Replay, low: int) -> Numbers:
        return uniform(key, step, 1, size, low, ring.count)[0]


class Attentive(TransitionSampler):
    def draw(self, key: int, step: int, size: int, ring: Replay, low: int) -> Numbers:
        keys = AttentiveKeys(candidates=3.0, anneal=20)
        return attentive(key, step, size, low, ring.count, ring.count - 1, keys, lambda n: ring.states(n)[0])


class Prioritized(TransitionSampler):
    def __init__(self, ring: Replay) -> None:
        self.priorities = Priorities(ring.shape.rows, 0.6)

    def draw(self, key: int, step: int, size: int, ring: Replay, low: int) -> Numbers:
        self.priorities.follow(low, ring.count)
        return self.priorities.draw(key, step, 1, size).numbers[0]

    def learned(self, numbers: Numbers, error: Any) -> None:
        self.priorities.update(numbers, np.asarray(error))

    def state_dict(self) -> Any:
        return self.priorities.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.priorities.load_state_dict(state)


KINDS: dict[str, Any] = {
    "uniform": lambda ring: Uniform(), "attentive": lambda ring: Attentive(), "prioritized": Prioritized,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_it_conforms(kind: str) -> None:
    check(KINDS[kind])


BROKEN: dict[str, tuple[str, Any, str, str]] = {
    "what the ring has lost": ("uniform", uniform, "(low + (", "((low > 0) * -1 + ("),
    "one sample for all steps": ("uniform", uniform, "first * size, (first", "0 * size, (0 * first"),
    "fewer than asked": ("attentive", attentive, "[:size]]", "[: max(size - 1, 1)]]"),
    "one key for all": ("attentive", attentive, "generator(key, step)", "generator(step)"),
    "places for numbers": ("prioritized", Priorities.draw, "self.low + (place - self.low) % self.rows", "place"),
    "the leaves are not restored": (
        "prioritized", Priorities.load_state_dict, "self.high), leaves)", "self.high), np.ones(1))"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_the_check_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, function, old, new = BROKEN[name]
    mutate(monkeypatch, function, old, new)
    check_notices(check, KINDS[kind])
