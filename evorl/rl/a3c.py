"""Asynchronous advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783): the members send gradients.

Each member computes the gradient of A2C's loss on its own batch, at the weights it has. The learner takes one step
along each gradient when it arrives. A message is as large as the weights, not as the experience. The learner alone
holds the optimiser. With ``optimizer: rmsprop_tf`` that is the paper's shared RMSProp, whose statistics all threads
have in common; but the gradient is clipped, and the mean of squares begins at 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from evorl.mdp.core import Spec
from evorl.ops.losses import explained_variance
from evorl.rl import a2c
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.core import Learned, NotFinite
from evorl.rl.policy_gradient import Coefficients, Columns
from evorl.util.errors import BadRequest
from evorl.util.schedule import value as scheduled


@dataclass(frozen=True, kw_only=True)
class A3C(a2c.A2C):
    parallel: ClassVar[bool] = False  # its members compute the gradients
    asynchronous: bool = True

    def __post_init__(self) -> None:
        if not self.asynchronous:
            raise BadRequest("A3C that waits for all members is A2C (rl=a2c)", "asynchronous")
        if self.normalize_inputs or self.normalize_rewards:
            name = "normalize_inputs" if self.normalize_inputs else "normalize_rewards"
            raise BadRequest("an A3C learner sees gradients, not what running statistics are made of", name)
        if self.correction != "none":
            raise BadRequest("A3C's gradients are of the policy that acted, there is nothing to correct", "correction")
        super().__post_init__()

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


@dataclass
class Gradient:
    """The gradient of a member's batch, and numbers about the loss."""

    gradient: Tensor  # [D], of the loss at the member's weights, not clipped
    stats: dict[str, float]


class Learner(a2c.Learner):
    update_input: ClassVar[type] = Gradient

    def to_update_input(self, batch: PolicyGradientBatch, step: int) -> Gradient:
        """The accumulated gradient of algorithm S3; ``step`` drives the schedules of its numbers."""
        self.follow_schedules(step)
        log_prob, value, advantage, target = self._advantages_and_targets(batch, batch.reward)
        columns = self._columns(batch, log_prob, value, advantage.sum(-1), target)
        rows = torch.arange(columns.action.shape[self._axis], device=self.device)
        numbers = self._replay(self._gradient_and_stats, self.theta, self.coefficients, rows, columns)
        stats = {name: float(x) for name, x in numbers.items() if name != "gradient"}
        stats["value/explained_variance"] = float(explained_variance(value, target))
        return Gradient(numbers["gradient"], stats)

    def _gradient_and_stats(
        self, theta: Tensor, coefficients: Coefficients, rows: Tensor, columns: Columns
    ) -> dict[str, Tensor]:
        """Return the gradient [D] and named numbers about the loss."""
        gradient, stats = self._gradient(theta, coefficients, rows, columns)
        return {"gradient": gradient, **stats}

    def update(self, update_input: Any, step: int, iteration: int) -> Learned:
        """Take one step along a member's gradient. Raises `NotFinite`."""
        rate = scheduled(self.hyper.lr, step)
        self.lr.fill_(rate)
        gradient = update_input.gradient.to(self.device)
        norm = float(self._apply_gradient(gradient, *self.network, self.lr))
        for name, x in {**update_input.stats, "optimizer/grad_norm": norm}.items():
            if not -float("inf") < x < float("inf"):
                raise NotFinite(f"{name} is {x} in a member's gradient")
        return Learned(1, {**update_input.stats, "optimizer/grad_norm": norm, "optimizer/lr": rate})
