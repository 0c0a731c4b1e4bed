"""Where a learner's actions are all that is asked for, they are those of `act`, and nothing else is computed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from test_frozen_policies import CASES, ROWS, STEPS, drawn, learners
from torch.utils._python_dispatch import TorchDispatchMode

from evorl.mdp.gymnasium import Gymnasium
from evorl.rl import evaluation
from evorl.rl.core import Acting, Decision, Played
from evorl.rl.ppo import PPO
from evorl.training.train import spec as spec_of


@pytest.mark.slow_cases(
    "box-1",
    "state std-1",
    "discrete-1",
    "sac-1",
    "td3-1",
    "dqn-1",
    "whitened-1",
    "pictures-1",
    "masked-1",
    "normalised-1",
    "several rewards-1",
    "shared-1",
)
@pytest.mark.parametrize("rows", [1, ROWS])
@pytest.mark.parametrize("case", CASES)
def test_they_have_the_same_bits(case: str, rows: int) -> None:
    kind, keys, spec = CASES[case]
    learner = learners(kind, keys, spec)[0]
    carry = learner.carry(rows)
    for step in range(STEPS):
        inputs, legal, noise, start = drawn(spec, rows, step)
        arguments = inputs, legal, noise, carry, None if carry is None else start
        whole, played = learner.act(*arguments), learner.play(*arguments)
        assert torch.equal(whole.played, played.played)
        assert (carry is None) == (played.carry is None) == (whole.carry is None)
        if carry is not None:
            assert torch.equal(whole.carry, played.carry)
        carry = played.carry


class Operations(TorchDispatchMode):
    """The names of the operations that are performed while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.names = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("case", ["discrete", "masked", "box", "recurrent"])
def test_nothing_else_is_computed(case: str) -> None:
    kind, keys, spec = CASES[case]
    learner = learners(kind, keys, spec)[0]
    inputs, legal, noise, start = drawn(spec, 1, 0)
    carry = learner.carry(1)
    arguments = inputs, legal, noise, carry, None if carry is None else start
    performed = []
    for decide in (learner.play, learner.act):
        decide(*arguments)  # records
        with Operations() as operations:
            decide(*arguments)
        performed.append(operations.names)
    played, whole = performed
    assert whole["addmm"] - played["addmm"] == 1  # the value head
    of_log_probabilities = {"_log_softmax", "gather", "pow", "sum"}
    assert whole.keys() & of_log_probabilities and not played.keys() & of_log_probabilities


def test_an_evaluation_computes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Gymnasium(id="CartPole-v1")
    learner = PPO().learner(spec_of(world), 1, torch.device("cpu"))
    whole = evaluation.play_episodes(_Whole(learner), world, 1, 3, deterministic=False)
    monkeypatch.setattr(learner, "act", None)
    assert evaluation.play_episodes(learner, world, 1, 3, deterministic=False) == whole


class _Whole:
    """A policy without `play`, as plugins may have them."""

    def __init__(self, learner: Acting) -> None:
        self.learner, self.spec, self.carry = learner, learner.spec, learner.carry

    def act(self, *arguments: object) -> Decision | Played:
        return self.learner.act(*arguments)  # type: ignore[arg-type]
