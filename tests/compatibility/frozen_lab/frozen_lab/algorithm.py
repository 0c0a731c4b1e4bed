"""FrozenLab: a policy gradient whose steps are held back by a quadratic penalty (SPO: Xie et al. 2024, arXiv 2401.16025).

With the ratio r = pi(a|s) / pi_old(a|s) and the advantage A, it maximises the mean of

    r A - |A| / (2 epsilon) (r - 1)^2

which is largest at r = 1 + epsilon sign(A). PPO's clipped objective is flat beyond that; this one leads back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from evorl.mdp.core import Spec
from evorl.nets.policy import Output
from evorl.ops.losses import value_loss
from evorl.rl.policy_gradient import Loss, Minibatch, PolicyGradient, PolicyGradientHyper
from evorl.util.types import Count, Positive
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class FrozenLab(PolicyGradientHyper):
    """The keys of conf/rl/frozen_lab.yaml, beside those of every policy gradient."""

    epsilon: Positive = 0.2
    """Distance of the ratio from 1 at which the objective is largest."""
    passes: Count = 4
    """Passes over a batch."""
    minibatch: Count = 256
    """Decisions in each gradient step."""

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


class Learner(PolicyGradient[FrozenLab]):
    def loss(self, out: Output, log_prob: Tensor, entropy: Tensor, mini: Minibatch) -> Loss:
        """The objective above with the value error and an entropy bonus, to be minimised."""
        ratio = (log_prob - mini.log_prob).exp()
        penalty = mini.advantage.abs() / (2 * self.hyper.epsilon) * (ratio - 1).square()
        policy = (penalty - ratio * mini.advantage).mean()
        value = value_loss(out.value, mini.target)
        bonus = entropy.mean()
        total = policy + mini.critic_coef * value - mini.entropy_coef * bonus
        return Loss(total, {
            "loss/policy": policy, "loss/value": value, "policy/entropy": bonus, "frozen_lab/penalty": penalty.mean(),
        })  # fmt: skip

    def passes(self) -> int:
        return self.hyper.passes

    def minibatch(self, decisions: int) -> int:
        return min(self.hyper.minibatch, decisions)
