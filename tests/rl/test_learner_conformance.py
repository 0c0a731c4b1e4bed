"""The conformance test of learners: ours pass it, and a learner that breaks a rule is told which."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from evorl.mdp.core import World
from evorl.mdp.gymnasium import Gymnasium
from evorl.mdp.pong.world import Pong
from evorl.nets.policy import Net
from evorl.rl.a2c import A2C
from evorl.rl.conformance import Nonconformity, _Training, check
from evorl.rl.core import Decision, Hyper
from evorl.rl.dqn import DQN
from evorl.rl.policy_gradient import Loss
from evorl.rl.ppo import PPO, Learner
from evorl.rl.td3 import TD3
from evorl.rl.vtrace import VTrace
from evorl.util.schedule import Anneal, Schedule, scheduled_fields

CARTPOLE, PENDULUM = Gymnasium(id="CartPole-v1"), Gymnasium(id="Pendulum-v1")
SMALL = Net(hidden=(8,))
SHORT = {"slots": 4, "horizon": 16, "net": SMALL}
REPLAY: dict[str, Any] = {"slots": 2, "horizon": 16, "warm_up": 32, "batch": 8, "net": SMALL}


@pytest.mark.slow_cases(but=("ppo-lstm", "td3", "vtrace"))
@pytest.mark.parametrize(
    ("hyper", "world"),
    [
        pytest.param(PPO(**SHORT, minibatch=16), CARTPOLE, id="ppo"),
        pytest.param(PPO(**SHORT, minibatch=32, normalize_inputs=True), PENDULUM, id="ppo-normalised"),
        pytest.param(
            PPO(slots=4, horizon=16, minibatch=32, passes=2, net=Net(hidden=(8,), lstm=8)), Pong(), id="ppo-lstm"
        ),
        pytest.param(
            PPO(**SHORT, minibatch=16, compile=True),
            CARTPOLE,
            id="ppo-compiled",
            marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler: make test-all"),
        ),
        pytest.param(A2C(**SHORT), Pong(), id="a2c"),
        pytest.param(DQN(**REPLAY), CARTPOLE, id="dqn"),
        pytest.param(TD3(**{**REPLAY, "net": TD3().net}), PENDULUM, id="td3"),
        pytest.param(VTrace(**SHORT, batch=8, fill_in=8, asynchronous=False), CARTPOLE, id="vtrace"),
    ],
)
def test_ours_conform(hyper: Hyper, world: World) -> None:
    check(hyper, world)


def broken(**methods: Callable[..., Any]) -> PPO:
    """PPO whose learner has these methods instead."""
    kind = type("Broken", (Learner,), methods)

    class Mine(PPO):
        def learner(self, spec: Any, seed: int, device: torch.device) -> Learner:
            made: Learner = kind(self, spec, seed, device)
            return made

    return Mine(**SHORT, minibatch=16, passes=2)


def named(self: Learner, batch: Any, step: int, iteration: int) -> Any:
    learned = Learner.update(self, batch, step, iteration)
    return learned._replace(metrics={**learned.metrics, "los/policy": 1.0})


def lost(self: Learner, batch: Any, step: int, iteration: int) -> Any:
    learned = Learner.update(self, batch, step, iteration)
    return learned._replace(metrics={**learned.metrics, "loss/policy": float("nan")})


def idle(self: Learner, batch: Any, step: int, iteration: int) -> Any:
    return Learner.update(self, batch, step, iteration)._replace(steps=0)


def still(self: Learner, batch: Any, step: int, iteration: int) -> Any:
    before = self.theta.clone()
    learned = Learner.update(self, batch, step, iteration)
    self.theta.copy_(before)
    return learned


def forgets(self: Learner) -> Any:
    state = Learner.state_dict(self)
    return {**state, "optimizer": {name: torch.zeros_like(x) for name, x in state["optimizer"].items()}}


def restless(self: Learner, inputs: Any, legal: Any, noise: Any, carry: Any, start: Any) -> Any:
    self.calls = getattr(self, "calls", 0) + 1
    decision = Learner.act(self, inputs, legal, noise, carry, start)
    return decision._replace(value=decision.value + self.calls)


def acts_otherwise(self: Learner, *given: Any) -> Decision:
    decision = Learner.act(self, *given)
    return decision._replace(played=1 - decision.played)


def alike(self: Learner, generator: torch.Generator) -> None:
    Learner._initialise(self, torch.Generator().manual_seed(1))


def counts(self: Learner, out: Any, log_prob: Any, entropy: Any, mini: Any) -> Any:
    self.calls = getattr(self, "calls", 0) + 1
    loss = Learner.loss(self, out, log_prob, entropy, mini)
    return loss._replace(total=loss.total / self.calls)


def reads(self: Learner, out: Any, log_prob: Any, entropy: Any, mini: Any) -> Any:
    loss = Learner.loss(self, out, log_prob, entropy, mini)
    return loss._replace(total=loss.total * self.factor)


def halves(self: Learner, batch: Any, step: int, iteration: int) -> Any:
    self.factor = 0.5**iteration
    return Learner.update(self, batch, step, iteration)


def halves_in_place(self: Learner, batch: Any, step: int, iteration: int) -> Any:
    self.factor = getattr(self, "factor", torch.ones(())).fill_(0.5**iteration)
    return Learner.update(self, batch, step, iteration)


@dataclass(frozen=True, kw_only=True)
class Scheduled(PPO):
    scale: Schedule = field(default_factory=lambda: Anneal(start=1.0, end=0.0, steps=256))

    def learner(self, spec: Any, seed: int, device: torch.device) -> Learner:
        return ScheduledLearner(self, spec, seed, device)


class ScheduledLearner(Learner):
    def loss(self, out: Any, log_prob: Any, entropy: Any, mini: Any) -> Any:
        loss = super().loss(out, log_prob, entropy, mini)
        return Loss(
            loss.total * mini.scheduled["scale"],
            {**loss.stats, "test_learner_conformance/scale": mini.scheduled["scale"]},
        )


def test_a_loss_reads_its_own_keys_as_scheduled() -> None:
    hyper = Scheduled(**SHORT, minibatch=16)
    training = _Training(hyper, CARTPOLE, seed=1)
    training.learn(4)
    steps = [64 * (number + 1) for number in range(4)]  # 4 slots of 16 steps in each batch
    assert [one.metrics["test_learner_conformance/scale"] for one in training.learned] == [
        1 - step / 256 for step in steps
    ]
    assert scheduled_fields(Scheduled) == ("lr", "entropy_coef", "scale")
    check(Scheduled(**SHORT, minibatch=16, passes=2, scale=Anneal(start=1.0, end=0.5, steps=256)), CARTPOLE)


def test_a_tensor_that_changes_in_place_is_no_frozen_number() -> None:
    check(broken(loss=reads, update=halves_in_place), CARTPOLE)


@pytest.mark.parametrize(
    ("methods", "line"),
    [
        ({"loss": counts}, "a number in its gradient steps changes"),
        ({"loss": reads, "update": halves}, "a number in its gradient steps changes"),
        ({"update": named}, "'los/policy' is not a registered metric"),
        ({"update": lost}, "loss/policy is nan"),
        ({"update": idle}, "it took no gradient step"),
        ({"update": still}, "its gradient steps do not change the policy"),
        ({"state_dict": forgets}, "the same seed, with a state that was saved"),
        ({"state_dict": lambda self: {**Learner.state_dict(self), "seen": {1, 2}}}, "its state holds a set"),
        ({"act": restless}, "without noise the same rows get other actions"),
        ({"act": acts_otherwise}, "its `play` takes other actions than its `act`"),
        ({"load_weights": lambda self, weights: None}, "with the same weights two learners act unlike"),
        ({"load_policy": lambda self, state: None}, "the same seed, with a state that was saved"),
        ({"_initialise": alike}, "another seed gives the same policy"),
    ],
)
def test_a_rule_that_is_broken(methods: dict[str, Any], line: str) -> None:
    with pytest.raises(Nonconformity) as told:
        check(broken(**methods), CARTPOLE)
    assert str(told.value).startswith(line)
