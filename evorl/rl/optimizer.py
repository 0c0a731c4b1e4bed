"""Learners that take their gradient steps with Adam or with a form of RMSProp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from evorl.mdp.core import Spec
from evorl.ops.rmsprop import rmsprop, rmsprop_tf
from evorl.rl.core import Hyper
from evorl.rl.network_learner import NetworkLearner
from evorl.util.types import Averaging, Positive


@dataclass(frozen=True, kw_only=True)
class OptimizerHyper(Hyper):
    """Hyper-parameters of learners with a choice of the optimiser."""

    optimizer: Literal["adam", "rmsprop", "rmsprop_tf"] = "adam"
    """RMSProp as in PyTorch; or as in TensorFlow 1, with epsilon under the root and a mean that begins at 1."""
    rmsprop_epsilon: Positive = 0.01
    rmsprop_decay: Averaging = 0.99
    """Share of the past in the mean of squared gradients."""


H = TypeVar("H", bound=OptimizerHyper, covariant=True)


class OptimizerLearner(NetworkLearner[H]):
    """A learner whose gradient step is the one that its hyper-parameters choose."""

    def __init__(self, hyper: H, spec: Spec, seed: int, device: torch.device) -> None:
        super().__init__(hyper, spec, seed, device)
        if hyper.optimizer == "rmsprop_tf":
            self.adam["v"].fill_(1.0)

    def _apply_gradient(self, gradient: Tensor, theta: Tensor, m: Tensor, v: Tensor, t: Tensor, lr: Tensor) -> Tensor:
        """Take a step along the clipped gradient, in place; return the gradient's norm before clipping."""
        if self.hyper.optimizer == "adam":
            return super()._apply_gradient(gradient, theta, m, v, t, lr)
        norm, gradient = self._clipped(gradient)
        step = {"rmsprop": rmsprop, "rmsprop_tf": rmsprop_tf}[self.hyper.optimizer]
        step(theta, gradient, v, lr, self.hyper.rmsprop_decay, self.hyper.rmsprop_epsilon)
        return norm
