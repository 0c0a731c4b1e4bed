"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv 1509.02971, algorithm 1).

The critic learns the value of the deterministic actor by targets from slowly following copies of both. The actor
follows the critic's gradient with respect to the action. What differs: exploration is by Gaussian noise, which works as
well as the paper's Ornstein-Uhlenbeck process (Fujimoto et al. 2018, section 6); there is no batch normalisation and no
weight decay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from evorl.mdp.core import Spec, StateDict
from evorl.rl.data_parallel import Argument, Split
from evorl.rl.off_policy import OffPolicy, OffPolicyHyper
from evorl.rl.replay_learner import follow, gap
from evorl.util.errors import BadRequest
from evorl.util.types import NonNegative


@dataclass(frozen=True, kw_only=True)
class DDPG(OffPolicyHyper):
    exploration: NonNegative = 0.1
    """Standard deviation of the noise on training actions, in half ranges of the action."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.net.output != "tanh":  # which allows no std but free
            raise BadRequest("must be tanh: the actor is deterministic", "net.output")

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner[DDPG]:
        return Learner(self, spec, seed, device)


H = TypeVar("H", bound=DDPG, covariant=True)


class Learner(OffPolicy[H]):
    critics: ClassVar[int] = 1

    def __init__(self, hyper: H, spec: Spec, seed: int, device: torch.device) -> None:
        super().__init__(hyper, spec, seed, device)
        self.theta_target = self.theta.clone()

    def explore(self, raw: Tensor, noise: Tensor) -> Tensor:
        return (raw + self.hyper.exploration * noise).clamp(-1, 1)

    def actor_is_due(self, number: int) -> bool:
        """Whether a gradient step moves the actor and the targets too."""
        return True

    def target_action(self, theta_target: Tensor, following: tuple[Tensor, ...], noise: Tensor) -> Tensor:
        """The action [N, K] in the next state whose value a target takes; ``noise`` [noises, N, K]."""
        return self.actor(theta_target, following)

    def tensors(self) -> list[Tensor]:
        return [*super().tensors(), self.theta_target]

    def gradient_step(self, number: int, noise: Tensor, columns: list[Tensor]) -> dict[str, Tensor]:
        rest: tuple[Argument, ...] = (self.lr, Split(noise, 1), *self._statistics(), *[Split(x, 0) for x in columns])
        critic = (self.theta_target, self.phi, self.phi_target, *self.critic_adam.values())
        if not self.actor_is_due(number):
            return self._take_step(self._critic_step, *critic, *rest)
        return self._take_step(self._critic_and_actor_step, *critic, self.theta, *self.adam.values(), *rest)

    def _critic_step(
        self, theta_target: Tensor, phi: Tensor, phi_target: Tensor, m: Tensor, v: Tensor, t: Tensor, lr: Tensor,
        noise: Tensor, *columns: Tensor,
    ) -> dict[str, Tensor]:  # fmt: skip
        inputs, action, reward, discount, following = self.split(columns)
        with torch.no_grad():
            next_action = self.target_action(theta_target, following, noise)
            next_value = self.q_values(phi_target, following, next_action).amin(0)
            target = reward + discount * next_value  # y_i; of several critics the smallest value counts
        return self.critic_update(phi, m, v, t, lr, inputs, action, target)

    def _critic_and_actor_step(
        self, theta_target: Tensor, phi: Tensor, phi_target: Tensor, m: Tensor, v: Tensor, t: Tensor,
        theta: Tensor, actor_m: Tensor, actor_v: Tensor, actor_t: Tensor, lr: Tensor, noise: Tensor, *columns: Tensor,
    ) -> dict[str, Tensor]:  # fmt: skip
        stats = self._critic_step(theta_target, phi, phi_target, m, v, t, lr, noise, *columns)
        stats |= self._actor_step(theta, actor_m, actor_v, actor_t, lr, phi, noise, *columns)
        follow(phi_target, phi, self.hyper.tau)
        follow(theta_target, theta, self.hyper.tau)
        return {**stats, "value/target_gap": gap(phi, phi_target)}

    def actor_loss(
        self, theta: Tensor, guide: tuple[Tensor, ...], noise: Tensor, columns: tuple[Tensor, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Its gradient is the negated deterministic policy gradient, eq. 6."""
        inputs = self.now(columns)
        value = self.critic.first(self.critic_layout, guide[0], inputs, self.actor(theta, inputs))
        return -value.sum(-1).mean(), {}

    # -------------------------------------------------------------- critics and actors apart

    def set_target_policy(self, theta: Tensor) -> None:
        self.theta_target.copy_(theta)

    def critic_step(self, noise: Tensor, columns: list[Tensor]) -> dict[str, Tensor]:
        critic = (self.theta_target, self.phi, self.phi_target, *self.critic_adam.values())
        return self._take_step(self._critic_alone, *critic, self.lr, noise, *self._statistics(), *columns)

    def _critic_alone(
        self, theta_target: Tensor, phi: Tensor, phi_target: Tensor, m: Tensor, v: Tensor, t: Tensor, lr: Tensor,
        noise: Tensor, *columns: Tensor,
    ) -> dict[str, Tensor]:  # fmt: skip
        stats = self._critic_step(theta_target, phi, phi_target, m, v, t, lr, noise, *columns)
        follow(phi_target, phi, self.hyper.tau)
        return {**stats, "value/target_gap": gap(phi, phi_target)}

    def actor(self, theta: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
        """Deterministic actions [N, K] for normalised inputs."""
        return self._network(theta, inputs, None, None).raw

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "policy_target": self.layout.copied(self.theta_target)}

    def load_policy(self, state: StateDict) -> None:
        super().load_policy(state)
        if "policy_target" not in state:
            raise ValueError("it has no target actor")
        self.layout.load(self.theta_target, state["policy_target"])
