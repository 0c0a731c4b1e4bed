"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), clipped surrogate, with GAE.

Several passes over shuffled minibatches of each batch; the ratio of a multi-discrete action is the product
over its heads. Kept beyond the paper: advantages normalised per minibatch, gradients clipped by norm,
optional value clipping, and a stop of the passes once the policy has moved ``target_kl`` away.

Advantages, and how a truncated episode counts: `evorl.ops.returns.gae`, `evorl.rl.batch.PolicyGradientBatch`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evorl.mdp.core import Spec
from evorl.nets.policy import Output
from evorl.ops.losses import approximate_kl, ppo_clip, value_loss
from evorl.rl.core import Metrics
from evorl.rl.policy_gradient import Loss, Minibatch, PolicyGradient, PolicyGradientHyper
from evorl.util.errors import BadRequest
from evorl.util.types import Count, Positive


@dataclass(frozen=True, kw_only=True)
class PPO(PolicyGradientHyper):
    clip: Positive = 0.2
    """Range of the probability ratio, the paper's epsilon."""
    passes: Count = 10
    """Passes over each batch, the paper's K epochs."""
    minibatch: Count = 256
    """Decisions in each gradient step."""
    value_clip: Positive | None = None
    """Clip a new value to this distance from the old one in the loss; null: no clipping."""
    target_kl: Positive | None = None
    """Stop the passes once the mean KL of a pass exceeds this; null: never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minibatch == 1 and self.normalize_advantage:
            raise BadRequest("the normalised advantage of a single decision is 0, so nothing is learned", "minibatch")
        batch = (1 if self.asynchronous else self.members) * self.slots * self.horizon
        if self.minibatch > batch:
            what = "slots x horizon of one member" if self.asynchronous else "members x slots x horizon"
            raise BadRequest(f"{self.minibatch} is more than a batch has: {batch} decisions, {what}", "minibatch")

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


class Learner(PolicyGradient[PPO]):
    def loss(self, out: Output, log_prob: Tensor, entropy: Tensor, mini: Minibatch) -> Loss:
        """Eq. 9: clipped surrogate, value error, entropy bonus (negated, to be minimised)."""
        h = self.hyper
        policy, clipped = ppo_clip(log_prob, mini.log_prob, mini.advantage, h.clip)  # eq. 7
        value = value_loss(out.value, mini.target, mini.value, h.value_clip)
        bonus = entropy.mean()
        total = policy + mini.critic_coef * value - mini.entropy_coef * bonus
        kl = approximate_kl(log_prob, mini.log_prob)
        return Loss(total, {
            "loss/policy": policy, "loss/value": value, "policy/entropy": bonus, "policy/kl": kl,
            "policy/clip_fraction": clipped,
        })  # fmt: skip

    def passes(self) -> int:
        return self.hyper.passes

    def minibatch(self, decisions: int) -> int:
        return self.hyper.minibatch

    def _moved_too_far(self, stats: Metrics) -> bool:
        return self.hyper.target_kl is not None and stats["policy/kl"] > self.hyper.target_kl
