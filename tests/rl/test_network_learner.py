"""A learner that is no policy gradient is written on the shared base in a few lines."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from evorl.mdp.gymnasium import Gymnasium
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.core import Hyper, Learned
from evorl.rl.network_learner import NetworkLearner
from evorl.training.experiment import Budget, Experiment
from evorl.training.train import Run, spec
from evorl.util.types import Count


@dataclass(frozen=True, kw_only=True)
class Regression(Hyper):
    """A critic alone: regression on the next reward, from a memory of all batches so far."""

    slots: Count = 2
    horizon: Count = 8
    updates: Count = 3

    def storage(self, spec: Any, slots: int) -> PolicyGradientBatch:
        return PolicyGradientBatch.empty(spec, self.horizon, slots, self.net.lstm)

    def learner(self, spec: Any, seed: int, device: torch.device) -> RegressionLearner:
        return RegressionLearner(self, spec, seed, device)


class RegressionLearner(NetworkLearner[Regression]):
    update_input = PolicyGradientBatch

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.memory: list[tuple[Tensor, Tensor]] = []

    def update(self, batch: PolicyGradientBatch, step: int, iteration: int) -> Learned:
        """Append the batch to the memory, then take gradient steps on all of it."""
        self.lr.fill_(1e-2)
        self.memory.append((batch.inputs[0][:-1].flatten(0, 1).clone(), batch.reward.flatten(0, 1).clone()))
        inputs, reward = (torch.cat(column) for column in zip(*self.memory, strict=True))
        for _ in range(self.hyper.updates):
            theta = self.theta.detach().requires_grad_()
            loss = (self._outputs(theta, (inputs,), None, None).value - reward).square().mean()
            (gradient,) = torch.autograd.grad(loss, theta)
            self._apply_gradient(gradient, *self.network, self.lr)
        if self.moments is not None:
            self.moments.update((batch.inputs[0][:-1],))
        return Learned(self.hyper.updates, {"loss/value": float(loss.detach())})


def experiment(**words: Any) -> Experiment:
    hyper = Regression(**words)
    return Experiment(mdp=Gymnasium(id="Pendulum-v1"), rl=hyper, budget=Budget(steps=64))


def test_the_base_has_nothing_of_policy_gradients() -> None:
    names = {one.name for one in fields(Hyper)}
    assert not names & {"lam", "critic_coef", "entropy_coef", "normalize_advantage", "normalize_rewards", "correction"}
    assert {"members", "slots", "horizon", "gamma", "lr", "compile", "net", "asynchronous"} <= names


@pytest.mark.parametrize("asynchronous", [False, True])
def test_it_collects_learns_and_resumes(asynchronous: bool) -> None:
    what = experiment(members=2, asynchronous=asynchronous, normalize_inputs=True)
    run = Run(what)
    try:
        losses = [run.iterate().metrics["loss/value"] for _ in range(12)]
        state = run.state_dict()
        assert len(run.learner.memory) == 12
    finally:
        run.close()
    assert losses[-1] < losses[0] and run.updates == 36
    again = Run(what)
    try:
        again.load_state_dict(state)
        assert torch.equal(again.learner.theta, run.learner.theta)
        assert again.iterate().metrics["loss/value"] > 0
    finally:
        again.close()


def test_it_acts_and_hands_on_its_weights() -> None:
    what = experiment()
    first, second = (what.rl.learner(spec(what.mdp), seed, torch.device("cpu")) for seed in (0, 1))
    inputs = (torch.from_numpy(np.ones((2, 3), np.float32)),)
    noise = torch.zeros(2, 1)
    before = second.act(inputs, None, noise, None, None)
    second.load_weights(first.weights())
    after, want = (one.act(inputs, None, noise, None, None) for one in (second, first))
    assert torch.equal(after.action, want.action) and not torch.equal(before.action, want.action)
    third = what.rl.learner(spec(what.mdp), 2, torch.device("cpu"))
    third.load_policy(first.state_dict())
    assert torch.equal(third.theta, first.theta)


@pytest.mark.parametrize("kind", [torch.float64, torch.int64, torch.uint8])
def test_inputs_of_another_type_are_those_of_another_record(kind: torch.dtype) -> None:
    own, fresh = (Regression().learner(spec(Gymnasium(id="Pendulum-v1")), 0, torch.device("cpu")) for _ in range(2))
    noise, row = torch.zeros(1, 1), torch.tensor([[1, 0, 2]])
    own.act((row.float(),), None, noise, None, None)
    same = (row.to(kind),), None, noise, None, None
    assert torch.equal(own.act(*same).action, fresh.act(*same).action)
