"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477, algorithm 1).

DDPG with three changes: targets take the smaller of two critics (section 4.2), the actor and all targets move only
every ``delay`` gradient steps (section 5.2), and target actions carry clipped noise (section 5.3, eq. 14).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evorl.mdp.core import Spec, StateDict
from evorl.rl.off_policy import OffPolicy, OffPolicyHyper, follow
from evorl.util.errors import BadRequest
from evorl.util.types import Count, NonNegative


@dataclass(frozen=True, kw_only=True)
class TD3(OffPolicyHyper):
    exploration: NonNegative = 0.1
    """Standard deviation of the noise on training actions, in half ranges of the action."""
    target_noise: NonNegative = 0.2
    """Standard deviation of the noise on target actions, in half ranges of the action."""
    target_clip: NonNegative = 0.5
    """Largest such noise."""
    delay: Count = 2
    """Gradient steps of the critics for each of the actor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.net.output != "tanh" or self.net.std != "free":
            raise BadRequest("a deterministic actor needs output=tanh and std=free", "net.output")

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


class Learner(OffPolicy[TD3]):
    def __init__(self, hyper: TD3, spec: Spec, seed: int, device: torch.device) -> None:
        super().__init__(hyper, spec, seed, device)
        self.theta_target = self.theta.clone()

    def explore(self, raw: Tensor, noise: Tensor) -> Tensor:
        return (raw + self.hyper.exploration * noise).clamp(-1, 1)

    def gradient_step(self, number: int, noise: Tensor, columns: list[Tensor]) -> dict[str, Tensor]:
        rest = (self.lr, noise, *self._statistics(), *columns)
        critic = (self.phi, self.phi_target, *self.critic_adam.values())
        if (number + 1) % self.hyper.delay:
            return self._updates.replay(self._critic_step, self.theta_target, *critic, *rest)
        actor = (self.theta, *self.adam.values())
        return self._updates.replay(self._critic_and_actor_step, self.theta_target, *critic, *actor, *rest)

    def _critic_step(
        self, theta_target: Tensor, phi: Tensor, phi_target: Tensor, m: Tensor, v: Tensor, t: Tensor, lr: Tensor,
        noise: Tensor, *columns: Tensor,
    ) -> dict[str, Tensor]:  # fmt: skip
        h = self.hyper
        inputs, action, reward, discount, following = self.split(columns)
        with torch.no_grad():
            smoothing = (h.target_noise * noise).clamp(-h.target_clip, h.target_clip)
            next_action = (self.actor(theta_target, following) + smoothing).clamp(-1, 1)  # eq. 14
            next_value = self.q_values(phi_target, following, next_action).amin(0)  # eq. 10
            target = reward + discount * next_value
        return self.critic_update(phi, m, v, t, lr, inputs, action, target)

    def _critic_and_actor_step(
        self, theta_target: Tensor, phi: Tensor, phi_target: Tensor, m: Tensor, v: Tensor, t: Tensor,
        theta: Tensor, actor_m: Tensor, actor_v: Tensor, actor_t: Tensor, lr: Tensor, noise: Tensor, *columns: Tensor,
    ) -> dict[str, Tensor]:  # fmt: skip
        stats = self._critic_step(theta_target, phi, phi_target, m, v, t, lr, noise, *columns)
        inputs = self.split(columns)[0]
        leaf = theta.detach().requires_grad_()
        value = self.critic.first(self.critic_layout, phi, inputs, self.actor(leaf, inputs))
        loss = -value.sum(-1).mean()  # the deterministic policy gradient, eq. 1
        (gradient,) = torch.autograd.grad(loss, leaf)
        norm = self._apply_gradient(gradient, theta, actor_m, actor_v, actor_t, lr)
        follow(phi_target, phi, self.hyper.tau)
        follow(theta_target, theta, self.hyper.tau)
        gap = (phi_target - phi).norm() / phi.norm()
        return {**stats, "loss/policy": loss.detach(), "optimizer/grad_norm": norm, "value/target_gap": gap}

    def actor(self, theta: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
        """Deterministic actions [N, K] for normalised inputs."""
        return self._network(theta, inputs, None, None).raw

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        target = {k: v.cpu().clone() for k, v in self.layout.unflatten(self.theta_target).items()}
        return {**super().state_dict(), "policy_target": target}

    def load_policy(self, state: StateDict) -> None:
        super().load_policy(state)
        named = {k: torch.as_tensor(v) for k, v in state["policy_target"].items()}
        self.theta_target.copy_(self.layout.flatten(named))
