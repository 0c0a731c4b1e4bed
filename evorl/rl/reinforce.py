"""REINFORCE (Williams 1992), eq. 11 of its episodic form: the return that followed, minus a baseline.

The return is the Monte-Carlo return if the episode ends within the batch. A longer episode is cut at the end of the
batch and bootstrapped with the baseline, so choose ``horizon`` as long as an episode for pure Monte-Carlo returns.
``baseline: false`` uses the return itself; with ``normalize_advantage: false`` it stays unscaled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evorl.mdp.core import Spec
from evorl.nets.policy import Output
from evorl.rl.policy_gradient import (
    Loss,
    Minibatch,
    PolicyGradient,
    PolicyGradientHyper,
    score_function_loss,
)
from evorl.util.errors import BadRequest
from evorl.util.schedule import Schedule
from evorl.util.types import Count, Fraction


@dataclass(frozen=True, kw_only=True)
class Reinforce(PolicyGradientHyper):
    horizon: Count = 512
    lam: Fraction | dict[str, Fraction] = 1.0
    lr: Schedule = 1e-2
    baseline: bool = True
    """Subtract the critic's value from the return."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.correction != "none" and not self.baseline:
            raise BadRequest(
                "without a baseline the return is not weighted by the ratio; add rl.baseline=true", "correction"
            )

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


class Learner(PolicyGradient[Reinforce]):
    def weight(self, advantage: Tensor, target: Tensor) -> Tensor:
        """With lambda = 1 the advantage is return minus baseline and the target is the return itself."""
        return advantage if self.hyper.baseline else target

    def loss(self, out: Output, log_prob: Tensor, entropy: Tensor, mini: Minibatch) -> Loss:
        return score_function_loss(out, log_prob, entropy, mini)
