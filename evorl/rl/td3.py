"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477, algorithm 1).

DDPG with three changes: targets take the smaller of two critics (section 4.2, eq. 10), the actor and all targets move
only every ``delay`` gradient steps (section 5.2), and target actions carry clipped noise (section 5.3, eq. 14).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from evorl.mdp.core import Spec
from evorl.rl import ddpg
from evorl.util.types import Count, NonNegative


@dataclass(frozen=True, kw_only=True)
class TD3(ddpg.DDPG):
    target_noise: NonNegative = 0.2
    """Standard deviation of the noise on target actions, in half ranges of the action."""
    target_clip: NonNegative = 0.5
    """Largest such noise."""
    delay: Count = 2
    """Gradient steps of the critics for each of the actor."""

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


class Learner(ddpg.Learner[TD3]):
    critics: ClassVar[int] = 2
    noises: ClassVar[int] = 1  # of the target action

    def actor_is_due(self, number: int) -> bool:
        return (number + 1) % self.hyper.delay == 0

    def target_action(self, theta_target: Tensor, following: tuple[Tensor, ...], noise: Tensor) -> Tensor:
        h = self.hyper
        smoothing = (h.target_noise * noise[0]).clamp(-h.target_clip, h.target_clip)
        return (self.actor(theta_target, following) + smoothing).clamp(-1, 1)

    def target_value(self, values: Tensor) -> Tensor:
        return values.amin(0)  # eq. 10
