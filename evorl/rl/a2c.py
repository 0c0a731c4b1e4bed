"""Advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783), synchronous: one gradient step per batch.

With ``lam: 1`` the advantage is the paper's: the return to the end of the fragment, bootstrapped there. With
``optimizer: rmsprop_tf`` the step is the paper's, but for the clipped gradient and a mean of squares that begins at 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evorl.mdp.core import Spec
from evorl.nets.policy import Output
from evorl.rl.optimizer import OptimizerHyper, OptimizerLearner
from evorl.rl.policy_gradient import (
    Loss,
    Minibatch,
    PolicyGradient,
    PolicyGradientHyper,
    score_function_loss,
)
from evorl.util.schedule import Schedule
from evorl.util.types import Count, Fraction, Positive


@dataclass(frozen=True, kw_only=True)
class A2C(OptimizerHyper, PolicyGradientHyper):
    slots: Count = 32
    horizon: Count = 8
    lam: Fraction | dict[str, Fraction] = 1.0
    lr: Schedule = 3e-3
    rmsprop_epsilon: Positive = 1e-5
    entropy_coef: Schedule = 0.01
    normalize_advantage: bool = False

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


class Learner(OptimizerLearner[A2C], PolicyGradient[A2C]):
    def loss(self, out: Output, log_prob: Tensor, entropy: Tensor, mini: Minibatch) -> Loss:
        """The gradient of section 4 (algorithm S3), with the entropy bonus."""
        return score_function_loss(out, log_prob, entropy, mini)
