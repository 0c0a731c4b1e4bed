"""The conformance test of learners: ours pass it, and a learner that breaks a rule is told which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from evorl.mdp.core import World
from evorl.mdp.gymnasium import Gymnasium
from evorl.mdp.pong.world import Pong
from evorl.nets.policy import Net
from evorl.rl.a2c import A2C
from evorl.rl.conformance import Nonconformity, check
from evorl.rl.core import Decision, Hyper
from evorl.rl.dqn import DQN
from evorl.rl.ppo import PPO, Learner
from evorl.rl.td3 import TD3
from evorl.rl.vtrace import VTrace

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
        pytest.param(PPO(slots=4, horizon=16, minibatch=32, net=Net(hidden=(8,), lstm=8)), Pong(), id="ppo-lstm"),
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

    return Mine(**SHORT, minibatch=16)


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


@pytest.mark.parametrize(
    ("methods", "line"),
    [
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
