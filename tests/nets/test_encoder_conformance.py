"""The conformance test of encoders: ours pass it, and an encoder that breaks a rule is told which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from evorl.inference.module import plain_network
from evorl.mdp.core import Box, Discrete, Input, Spec
from evorl.nets.conformance import Nonconformity, check
from evorl.nets.encoders import ENCODERS, Encoder, Inputs
from evorl.nets.policy import Net
from evorl.rl.frozen_policies import FrozenPolicies
from evorl.rl.ppo import PPO
from evorl.rl.td3 import TD3
from evorl.util.seed import generator

STATE = Input("state", (3,))


@dataclass(frozen=True, kw_only=True)
class Keys:
    width: int = 5


class Plain(Encoder):
    """A linear layer and a shift."""

    options = Keys
    light = True

    def __init__(self, inputs: Inputs, keys: Keys, dense: bool = True) -> None:
        super().__init__(inputs, keys, dense)
        self.layer, self.width = nn.Linear(inputs[0].shape[0], keys.width), keys.width
        self.shift = nn.Parameter(torch.zeros(keys.width))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.shift, generator=generator)

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        features: Tensor = torch.tanh(self.layer(inputs[0])) + self.shift
        return features


class Twice(Encoder):
    """Another encoder's features, doubled."""

    light = True

    def __init__(self, inputs: Inputs, keys: Any, dense: bool = True) -> None:
        super().__init__(inputs, keys, dense)
        self.inner = Plain(inputs, Keys(), dense)
        self.width = self.inner.width
        self.register_buffer("two", torch.tensor(2.0), persistent=False)

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        features: Tensor = self.inner(inputs) * self.two
        return features


def test_it_conforms() -> None:
    check(Plain, STATE)
    check(Plain, STATE, width=2)
    check(Twice, STATE)


@pytest.mark.slow_cases(but=("a3c",))
@pytest.mark.parametrize("name", ENCODERS)
def test_ours_conform(name: str) -> None:
    check(ENCODERS[name], STATE, Input("picture", (1, 36, 36), "uint8"))


def broken(**members: Any) -> type[Encoder]:
    return type("Broken", (Plain,), members)


def of_features(change: Callable[[Tensor], Tensor]) -> type[Encoder]:
    return broken(forward=lambda self, inputs: change(Plain.forward(self, inputs)))


def in_place(self: Plain, inputs: tuple[Tensor, ...]) -> Tensor:
    features = Plain.forward(self, inputs)
    inputs[0].add_(1)
    return features


def counting(self: Plain, inputs: tuple[Tensor, ...]) -> Tensor:
    with torch.no_grad():
        features = Plain.forward(self, inputs)
        self.shift.mul_(2)
    return features * 0 + 1


def normalised(self: Plain, inputs: tuple[Tensor, ...]) -> Tensor:
    return nn.functional.layer_norm(Plain.forward(self, inputs), (self.width,), self.shift)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (broken(initialise=lambda self, generator: nn.init.normal_(self.shift)), "the same seed gives other weights"),
        (of_features(torch.Tensor.double), r"features of 6 rows are float64 \[6, 5\], not float32"),
        (of_features(lambda x: x[:, 1:]), r"features of 6 rows are float32 \[6, 4\], not float32 \[6, 5\]"),
        (of_features(lambda x: x / 0), "a feature is not finite"),
        (broken(forward=in_place), "it writes into its inputs"),
        (of_features(lambda x: x + torch.rand(1)), "the same rows get other features the second time"),
        (broken(forward=counting), "it changes its parameters or buffers"),
        (of_features(lambda x: x - x.mean(0)), "a row's features depend on the other rows"),
        (broken(forward=lambda self, inputs: self.layer(inputs[0])), "its parameter shift gets no gradient"),
        (of_features(lambda x: x * x.abs().sum().item() ** 0), "several cannot be computed at once by torch.func.vmap"),
        (broken(forward=normalised), "its gradient cannot be replayed; one that is not light need not replay it"),
    ],
)
def test_a_broken_rule_is_told(kind: type[Encoder], sentence: str) -> None:
    with pytest.raises(Nonconformity, match=sentence):
        check(kind, STATE)


def test_one_that_is_not_light_may_have_any_gradient() -> None:
    check(broken(forward=normalised, light=False), STATE)


# ------------------------------------------------------------------ in use


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    monkeypatch.setitem(ENCODERS, "plain", Plain)
    monkeypatch.setitem(ENCODERS, "twice", Twice)
    return Net(encoder="plain", hidden=(8,))


def test_frozen_policies_have_encoders_of_their_own(net: Net) -> None:
    """Though it is light, a batched product of hidden layers alone is not what it computes."""
    spec = Spec((STATE,), Discrete(4))
    learners = [PPO(net=net).learner(spec, seed, torch.device("cpu")) for seed in (1, 2)]
    frozen = FrozenPolicies(learners[0], 2)
    frozen.put(1, learners[1].weights())
    seen = torch.from_numpy(generator("seen").standard_normal((20, 3)).astype(np.float32))
    noise = torch.zeros(20, 4)
    got = frozen.act((seen,), None, noise, None, None).action
    halves = [
        each.act((seen[rows],), None, noise[rows], None, None).action.clone()
        for each, rows in zip(learners, (slice(10), slice(10, 20)), strict=True)
    ]
    assert torch.equal(got, torch.cat(halves))


def test_all_weights_follow_from_the_seed(net: Net) -> None:
    box = Spec((STATE,), Box((-1.0,), (1.0,)))
    td3 = TD3(net=replace(TD3().net, encoder="plain"))
    for hyper, spec in ((PPO(net=net), Spec((STATE,), Discrete(2))), (td3, box)):
        first, again, other = (hyper.learner(spec, seed, torch.device("cpu")).weights()[0] for seed in (1, 1, 2))
        assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("kind", [PPO, TD3])
def test_every_learner_draws_what_is_an_inner_encoders_own(kind: Any, net: Net) -> None:
    box = Spec((STATE,), Box((-1.0,), (1.0,)))
    learner = kind(net=replace(kind().net, encoder="twice")).learner(box, 1, torch.device("cpu"))
    assert learner.layout.copied(learner.theta)["encoders.inner.shift"].all()


def test_a_plain_network_has_the_constants_of_its_encoder(net: Net) -> None:
    """Also those that a file of weights would not hold."""
    learner = PPO(net=replace(net, encoder="twice")).learner(Spec((STATE,), Discrete(4)), 1, torch.device("cpu"))
    x = torch.ones(2, 3)
    assert torch.equal(plain_network(learner)((x,))[0], learner.policy((x,))[0])
