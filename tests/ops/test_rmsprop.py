"""RMSProp is PyTorch's; `rmsprop_tf` follows its definition."""

from __future__ import annotations

import math

import pytest
import torch

from evorl.ops.rmsprop import RMSProp, rmsprop, rmsprop_tf
from evorl.util.seed import generator

settings = pytest.mark.parametrize(("decay", "epsilon"), [(0.99, 0.01), (0.9, 1e-8)])


@settings
def test_it_takes_the_steps_of_torch(decay: float, epsilon: float) -> None:
    draw = generator("rmsprop")
    theta = torch.from_numpy(draw.standard_normal(20))
    twin, past = theta.clone().requires_grad_(), RMSProp(torch.zeros(20, dtype=torch.float64))
    optimizer = torch.optim.RMSprop([twin], lr=0.05, alpha=decay, eps=epsilon)
    for _ in range(30):
        gradient = torch.from_numpy(draw.standard_normal(20))
        rmsprop(theta, gradient, past, torch.tensor(0.05, dtype=torch.float64), decay, epsilon)
        twin.grad = gradient.clone()
        optimizer.step()
        torch.testing.assert_close(theta, twin.detach(), rtol=1e-12, atol=1e-12)


@settings
def test_the_form_with_epsilon_under_the_root(decay: float, epsilon: float) -> None:
    """Against the mean of squares as a sum over all past gradients, with the 1 that it begins with."""
    draw = generator("rmsprop")
    theta = torch.from_numpy(draw.standard_normal(20))
    want, mean_square = theta.tolist(), torch.ones(20, dtype=torch.float64)
    past: list[list[float]] = []
    for step in range(1, 31):
        gradient = torch.from_numpy(draw.standard_normal(20))
        past.append(gradient.tolist())
        rmsprop_tf(theta, gradient, RMSProp(mean_square), torch.tensor(0.05, dtype=torch.float64), decay, epsilon)
        for i in range(20):
            mean = decay**step + sum((1 - decay) * decay ** (step - 1 - k) * g[i] ** 2 for k, g in enumerate(past))
            want[i] -= 0.05 * past[-1][i] / math.sqrt(mean + epsilon)
        torch.testing.assert_close(theta, torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=1e-12)
