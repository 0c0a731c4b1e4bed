"""The optimisers that learners are compared with: those of torch, and RMSProp in the form that torch lacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class RMSPropTF(torch.optim.Optimizer):
    """RMSProp with epsilon under the root and a mean of squares that begins at 1."""

    def __init__(self, parameters: list[Tensor], lr: float, alpha: float, eps: float) -> None:
        super().__init__(parameters, {"lr": lr})
        self.alpha, self.eps = alpha, eps
        self.mean = [torch.ones_like(x) for x in parameters]

    def step(self, closure: Any = None) -> None:
        group = self.param_groups[0]
        for x, mean in zip(group["params"], self.mean, strict=True):
            mean.copy_(self.alpha * mean + (1 - self.alpha) * x.grad**2)
            x.data -= group["lr"] * x.grad / torch.sqrt(mean + self.eps)


def optimizer_of(hyper: Any, parameters: Iterable[Tensor], lr: float = 0.0) -> torch.optim.Optimizer:
    """The optimiser that these hyper-parameters ask for; Adam of learners without a choice."""
    if getattr(hyper, "optimizer", "adam") == "adam":
        return torch.optim.Adam(parameters, lr=lr, eps=hyper.adam_epsilon)
    kind = {"rmsprop": torch.optim.RMSprop, "rmsprop_tf": RMSPropTF}[hyper.optimizer]
    return kind([*parameters], lr=lr, alpha=hyper.rmsprop_decay, eps=hyper.rmsprop_epsilon)
