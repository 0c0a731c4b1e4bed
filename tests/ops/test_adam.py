"""Both forms of Adam are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from evorl.ops.adam import Adam, adam, fused_adam
from evorl.util.seed import generator


@pytest.mark.parametrize("step", [adam, fused_adam])
@pytest.mark.parametrize("epsilon", [1e-8, 1e-2])
@pytest.mark.parametrize("shape", [(20,), (3, 7)])
def test_it_takes_the_steps_of_torch(step: Callable[..., None], epsilon: float, shape: tuple[int, ...]) -> None:
    draw = generator("adam")
    theta = torch.from_numpy(draw.standard_normal(shape))
    twin = theta.clone().requires_grad_()
    past = Adam(*(x.double() for x in Adam.of(theta)))
    optimizer = torch.optim.Adam([twin], lr=0.05, eps=epsilon)
    for _ in range(30):
        gradient = torch.from_numpy(draw.standard_normal(shape[::-1]).T)  # of another order in memory
        step(theta, gradient, past, torch.tensor(0.05, dtype=torch.float64), epsilon)
        twin.grad = gradient.clone()
        optimizer.step()
        torch.testing.assert_close(theta, twin.detach(), rtol=1e-9, atol=1e-12)
    assert past.t == 30
