"""Many frozen policies in one forward pass, against each policy by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from evorl.mdp.core import Box, Discrete, Input, MultiDiscrete, Spec, heads
from evorl.nets.distributions import draw_noise
from evorl.nets.policy import Net
from evorl.rl.core import Hyper
from evorl.rl.dqn import DQN
from evorl.rl.frozen_policies import FrozenPolicies
from evorl.rl.ppo import PPO
from evorl.rl.r2d2 import R2D2
from evorl.rl.sac import SAC
from evorl.rl.td3 import TD3

VECTOR = (Input("x", (3,)), Input("y", (2, 2)))
PICTURE = (Input("picture", (4, 36, 36), "uint8"),)
DISCRETE, MANY, BOX = Discrete(3), MultiDiscrete((2, 3)), Box((-1.0, -2.0), (1.0, 2.0))
SMALL = {"net": Net(hidden=(8,))}
CASES: dict[str, tuple[type[Hyper], dict[str, Any], Spec]] = {
    "discrete": (PPO, SMALL, Spec(VECTOR, DISCRETE)),
    "several rewards": (PPO, SMALL, Spec(VECTOR, DISCRETE, ("a", "b"))),
    "shared": (PPO, {"net": Net(hidden=(8,), shared=True)}, Spec(VECTOR, DISCRETE)),
    "masked": (PPO, SMALL, Spec(VECTOR, MANY, masked=True)),
    "box": (PPO, SMALL, Spec(VECTOR, BOX)),
    "state std": (PPO, {"net": Net(hidden=(8,), std="state")}, Spec(VECTOR, BOX)),
    "normalised": (PPO, SMALL | {"normalize_inputs": True}, Spec(VECTOR, DISCRETE)),
    "whitened": (PPO, SMALL | {"normalize_inputs": "whiten"}, Spec(VECTOR, DISCRETE)),
    "recurrent": (PPO, {"net": Net(hidden=(8,), lstm=6)}, Spec(VECTOR, DISCRETE)),
    "pictures": (PPO, {"net": Net(hidden=(8,))}, Spec(PICTURE, DISCRETE)),
    "dqn": (DQN, SMALL, Spec(VECTOR, DISCRETE)),
    "r2d2": (R2D2, {"net": Net(hidden=(8,), lstm=6)}, Spec(VECTOR, DISCRETE)),
    "td3": (TD3, {"net": Net(hidden=(8,), output="tanh")}, Spec(VECTOR, BOX)),
    "sac": (SAC, {"net": Net(hidden=(8,), std="state")}, Spec(VECTOR, BOX)),
}
PLACES, ROWS, STEPS = 3, 4, 5


def learners(kind: type[Hyper], keys: dict[str, Any], spec: Spec) -> list[Any]:
    """A policy for each place: weights of seeds of their own, and inputs of scales of their own."""
    found = [kind(**keys).learner(spec, seed, torch.device("cpu")) for seed in range(PLACES)]
    for seed, one in enumerate(found):
        generator = torch.Generator().manual_seed(seed)
        one.theta.add_(0.3 * torch.randn(one.theta.shape, generator=generator))  # deviations begin alike
        if one.moments is not None:
            one.moments.update(tuple((seed + 1) * torch.randn(50, *x.shape) + seed for x in spec.inputs))
    return found


def drawn(spec: Spec, rows: int, step: int) -> tuple[tuple[Tensor, ...], Tensor | None, Tensor, Tensor]:
    """Inputs, legal masks, noise and starts of ``rows`` rows at a step."""
    generator = np.random.default_rng(step)

    def draw(one: Input) -> Tensor:
        shape = (rows, *one.shape)
        if one.dtype == "uint8":
            return torch.from_numpy(generator.integers(0, 256, shape, np.uint8))
        return torch.from_numpy(generator.standard_normal(shape, np.float32))

    legal = torch.from_numpy(generator.random((rows, sum(heads(spec.action)))) < 0.6)
    legal[:, :1] = legal[:, -1:] = True  # the first head's first choice, and the last head's last one
    noise = torch.from_numpy(draw_noise(spec.action, generator, (rows,)))
    start = torch.from_numpy(generator.random(rows) < 0.3) if step else torch.ones(rows, dtype=torch.bool)
    return tuple(map(draw, spec.inputs)), legal if spec.masked else None, noise, start


@pytest.mark.slow_cases(
    "box-True",
    "td3-True",
    "state std-True",
    "shared-True",
    "normalised-True",
    "sac-True",
    "pictures-True",
    "whitened-True",
    "r2d2-True",
    "several rewards-True",
    "masked-True",
)  # without noise there is less to go wrong
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_each_place_decides_as_its_policy_does_by_itself(case: str, deterministic: bool) -> None:
    kind, keys, spec = CASES[case]
    policies = learners(kind, keys, spec)
    frozen = FrozenPolicies(policies[0], PLACES)
    for place, policy in enumerate(policies):
        frozen.put(place, policy.weights())
    carry, alone = frozen.carry(PLACES * ROWS), [policy.carry(ROWS) for policy in policies]
    for step in range(STEPS):
        inputs, legal, noise, start = drawn(spec, PLACES * ROWS, step)
        if deterministic or not policies[0].hyper.policy_head:
            noise = torch.zeros_like(noise)
        decision = frozen.act(inputs, legal, noise, carry, None if carry is None else start)
        carry = decision.carry
        for place, policy in enumerate(policies):
            mine = slice(place * ROWS, (place + 1) * ROWS)
            masks = None if legal is None else legal[mine]
            starts = None if carry is None else start[mine]
            same = policy.act(tuple(x[mine] for x in inputs), masks, noise[mine], alone[place], starts)
            alone[place] = same.carry
            torch.testing.assert_close(decision.action[mine], same.action)
            torch.testing.assert_close(decision.played[mine], same.played)


@pytest.mark.parametrize("case", ["discrete", "box", "recurrent", "whitened", "pictures"])
def test_the_bits_of_a_place_do_not_depend_on_the_others(case: str) -> None:
    kind, keys, spec = CASES[case]
    policies = learners(kind, keys, spec)
    inputs, legal, noise, start = drawn(spec, PLACES * ROWS, 0)

    def first(others: int) -> Tensor:
        frozen = FrozenPolicies(policies[0], 1 + others)
        for place in range(others):
            frozen.put(1 + place, policies[1 + place].weights())
        carry, rows = frozen.carry((1 + others) * ROWS), slice(0, (1 + others) * ROWS)
        starts = None if carry is None else start[rows]
        return frozen.act(tuple(x[rows] for x in inputs), legal, noise[rows], carry, starts).action[:ROWS]

    assert torch.equal(first(1), first(2))


def test_a_place_takes_a_copy_of_the_weights() -> None:
    kind, keys, spec = CASES["discrete"]
    first, second, _ = learners(kind, keys, spec)
    frozen = FrozenPolicies(first, 2)
    frozen.put(1, second.weights())
    before = [x.clone() for x in frozen.weights]
    for learner in (first, second):
        learner.theta.add_(1.0)
    assert all(torch.equal(x, y) for x, y in zip(before, frozen.weights, strict=True))
