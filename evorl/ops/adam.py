"""Adam (Kingma & Ba 2015, algorithm 1) on one flat parameter vector.

Written out rather than taken from torch.optim so that a captured update contains the whole step, and because
constructing a torch optimiser imports torch's compiler, seconds of start-up. Tested equal to torch.optim.Adam.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

BETA1, BETA2 = 0.9, 0.999


class Adam(NamedTuple):
    """What Adam keeps of past gradients."""

    m: Tensor  # [D] running mean
    v: Tensor  # [D] running mean of squares
    t: Tensor  # [] steps taken

    @classmethod
    def of(cls, theta: Tensor) -> Self:
        """Before the first step of parameters [D]; stacked ones [K, D] share the step count."""
        return cls(torch.zeros_like(theta), torch.zeros_like(theta), torch.zeros((), device=theta.device))


def adam(theta: Tensor, gradient: Tensor, past: Adam, lr: Tensor, epsilon: float) -> None:
    """One step, in place, on theta [D] and what is kept of the past; ``lr`` is a tensor [].

    Temporaries are reused: for a million weights, new memory takes as long as the arithmetic.
    """
    m, v, t = past
    t.add_(1)
    m.lerp_(gradient, 1 - BETA1)  # m_t = b1 m + (1 - b1) g
    v.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)  # v_t = b2 v + (1 - b2) g^2
    rate = lr / (1 - BETA1**t)
    scale = (1 - BETA2**t).sqrt()
    theta.sub_((rate * m).div_(v.sqrt().div_(scale).add_(epsilon)))  # theta -= lr m^ / (sqrt(v^) + eps)


def fused_adam(theta: Tensor, gradient: Tensor, past: Adam, lr: Tensor, epsilon: float) -> None:
    """`adam` by the kernel of ``torch.optim.Adam(fused=True)``, which reads and writes each number once.

    With a million weights it takes a tenth of the time. On the CPU it cannot be captured: it returns nothing, so the
    replay leaves it out.
    """
    m, v, t = past
    t.add_(1)
    torch._fused_adam_(
        [theta], [gradient.contiguous()], [m], [v], [], [t],
        lr=lr, beta1=BETA1, beta2=BETA2, weight_decay=0.0, eps=epsilon, amsgrad=False, maximize=False,
    )  # fmt: skip
