"""RMSProp is PyTorch's."""

from __future__ import annotations

import pytest
import torch

from evorl.ops.rmsprop import rmsprop
from evorl.util.seed import generator


@pytest.mark.parametrize(("decay", "epsilon"), [(0.99, 0.01), (0.9, 1e-8)])
def test_it_takes_the_steps_of_torch(decay: float, epsilon: float) -> None:
    draw = generator("rmsprop")
    theta = torch.from_numpy(draw.standard_normal(20))
    twin, v = theta.clone().requires_grad_(), torch.zeros(20, dtype=torch.float64)
    optimizer = torch.optim.RMSprop([twin], lr=0.05, alpha=decay, eps=epsilon)
    for _ in range(30):
        gradient = torch.from_numpy(draw.standard_normal(20))
        rmsprop(theta, gradient, v, torch.tensor(0.05, dtype=torch.float64), decay, epsilon)
        twin.grad = gradient.clone()
        optimizer.step()
        torch.testing.assert_close(theta, twin.detach(), rtol=1e-12, atol=1e-12)
