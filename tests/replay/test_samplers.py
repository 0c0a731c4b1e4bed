"""Samplers of transitions: one conformance check for all. That of replays of rollouts is in test_rollout_parts.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mutating import check_notices, mutate

from evorl.mdp.core import Discrete, Input, Spec
from evorl.replay.attentive import AttentiveKeys, attentive
from evorl.replay.parts.conformance import require
from evorl.replay.prioritized import Priorities
from evorl.replay.storage import Array, Fragment, Numbers, Replay, Shape
from evorl.replay.uniform import uniform
from evorl.util import seed as seeds
from evorl.util.types import StateDict

T, B = 5, 2  # decisions of a slot in a fragment, slots
SPEC = Spec((Input("number", (2,)),), Discrete(3))


class TransitionSampler(ABC):
    """A rule by which transitions are chosen. Most have no state and learn nothing."""

    @abstractmethod
    def draw(self, key: int, step: int, size: int, ring: Replay, low: int) -> Numbers:
        """Return the numbers [size] of the transitions for a gradient step, from ``low`` on."""

    def learned(self, numbers: Numbers, error: Array) -> None:
        """Learn how wrong the values of these transitions [N] were."""
        return

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        return


def toy_fragment(first: int) -> Fragment:
    """Decisions of slots that have made ``first`` each; the third of a fragment ends an episode."""
    drawn = seeds.generator("toy transitions", first)
    done = np.zeros((T, B), bool)
    done[2] = True
    states = drawn.standard_normal((T + 1, B, 2)).astype(np.float32)
    return Fragment(
        inputs=(states,), legal=None, action=drawn.integers(0, 3, (T, B, 1)),
        reward=drawn.random((T, B, 1), np.float32), done=done, terminated=done, final_inputs=(states[1:],),
        final_legal=None, column=np.arange(B), first=np.full(B, first),
    )  # fmt: skip


def check(make: Callable[[Replay], TransitionSampler], sizes: tuple[int, ...] = (1, 4, 9), rounds: int = 24) -> None:
    """Raise `Nonconformity`, with one sentence, unless the sampler that ``make`` makes for a ring keeps these rules.

    * A sample has as many transitions as were asked for, all of them such as may be read now.
    * A sample is a function of the key, the gradient step, what the ring holds and the sampler's state. Other keys and
      other steps give other samples.
    * A sampler with a restored state goes on with the same samples.
    """
    ring = Replay(SPEC, Shape(capacity=64, columns=B))
    sampler, differs = make(ring), {"key": False, "gradient step": False}
    for step in range(rounds):
        ring.append(toy_fragment(step * T))
        low, size = ring.oldest(ring.count), sizes[step % len(sizes)]
        twin = make(ring)
        twin.load_state_dict(sampler.state_dict())
        numbers = sampler.draw(1, step, size, ring, low)
        require(numbers.shape == (size,), f"{size} transitions were asked for, and it gave {len(numbers)}")
        require(bool(((numbers >= low) & (numbers < ring.count)).all()), "it gives a transition that may not be read")
        require(bool((twin.draw(1, step, size, ring, low) == numbers).all()), "the same state gives other samples")
        for name, other in (("key", (2, step)), ("gradient step", (1, step + rounds))):
            differs[name] |= bool((sampler.draw(*other, size, ring, low) != numbers).any())
        sampler.learned(numbers, seeds.generator("error", step).random(size))
    for name, found in differs.items():
        require(found, f"another {name} gives the same samples")


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
