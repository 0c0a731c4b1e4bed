"""Learners that take their gradient steps with Adam or with a form of RMSProp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from evorl.mdp.core import StateDict
from evorl.ops.adam import Adam
from evorl.ops.rmsprop import RMSProp, rmsprop, rmsprop_tf
from evorl.rl.core import Hyper
from evorl.rl.network_learner import NetworkLearner
from evorl.util.types import Averaging, Positive


@dataclass(frozen=True, kw_only=True)
class OptimizerHyper(Hyper):
    """Hyper-parameters of learners with a choice of the optimiser."""

    optimizer: Literal["adam", "rmsprop", "rmsprop_tf"] = "adam"
    """RMSProp as in PyTorch; or as in TensorFlow 1, with epsilon under the root and a mean that begins at 1."""
    rmsprop_epsilon: Positive = 0.01
    """Added to the root in the denominator of RMSProp's steps; by rmsprop_tf under the root."""
    rmsprop_decay: Averaging = 0.99
    """Share of the past in RMSProp's mean of squared gradients."""


H = TypeVar("H", bound=OptimizerHyper, covariant=True)


class OptimizerLearner(NetworkLearner[H]):
    """A learner whose gradient step is the one that its hyper-parameters choose."""

    def _new_optimizer(self, theta: Tensor) -> Adam | RMSProp:
        if self.hyper.optimizer == "adam":
            return super()._new_optimizer(theta)
        begin = torch.ones_like if self.hyper.optimizer == "rmsprop_tf" else torch.zeros_like
        return RMSProp(begin(theta))

    def _apply_gradient(self, gradient: Tensor, theta: Tensor, optimizer: Adam | RMSProp, lr: Tensor) -> Tensor:
        """Take a step along the clipped gradient, in place; return the gradient's norm before clipping."""
        if isinstance(optimizer, Adam):
            return super()._apply_gradient(gradient, theta, optimizer, lr)
        norm, gradient = self._clipped(gradient)
        step = {"rmsprop": rmsprop, "rmsprop_tf": rmsprop_tf}[self.hyper.optimizer]
        step(theta, gradient, optimizer, lr, self.hyper.rmsprop_decay, self.hyper.rmsprop_epsilon)
        return norm

    def load_state_dict(self, state: StateDict) -> None:
        past = state["optimizer"]
        if self.hyper.optimizer != "adam" and "v" in past:  # as older versions wrote RMSProp's
            state = {**state, "optimizer": {"mean_square": past["v"]}}
        super().load_state_dict(state)
