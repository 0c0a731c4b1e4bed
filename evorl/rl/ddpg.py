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
from evorl.nets.trees import Tree
from evorl.rl.data_parallel import GradientStep, Split
from evorl.rl.network_learner import Network
from evorl.rl.off_policy import Critic, OffPolicy, OffPolicyHyper
from evorl.rl.replay_learner import Transitions, follow
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

    def target_value(self, values: Tensor) -> Tensor:
        """The value [N, R] of that action, from those of all target critics [G, N, R]."""
        return values[0]

    def own(self) -> tuple[Tree, ...]:
        return (*super().own(), self.theta_target)

    def steps(self) -> tuple[GradientStep, ...]:
        return self._critic_step, self._critic_and_actor_step

    def gradient_step(self, number: int, noise: Tensor, minibatch: Transitions) -> dict[str, Tensor]:
        rest = (self.lr, self._statistics(), Split(noise, 1), Split(minibatch, 0))
        if not self.actor_is_due(number):
            return self._take_step(self._critic_step, self.critic, self.theta_target, *rest)
        return self._take_step(self._critic_and_actor_step, self.critic, self.network, self.theta_target, *rest)

    def _critic_step(
        self, critic: Critic, theta_target: Tensor, lr: Tensor, statistics: tuple[Tensor, ...], noise: Tensor,
        minibatch: Transitions,
    ) -> dict[str, Tensor]:  # fmt: skip
        inputs, following = (self.normalized(statistics, x) for x in (minibatch.inputs, minibatch.following))
        with torch.no_grad():
            next_action = self.target_action(theta_target, following, noise)
            next_value = self.target_value(self.q_values(critic.target, following, next_action))
            target = minibatch.reward + minibatch.discount * next_value  # y_i
        return self.critic_update(critic, lr, inputs, minibatch.action, target)

    def _critic_and_actor_step(
        self, critic: Critic, actor: Network, theta_target: Tensor, lr: Tensor, statistics: tuple[Tensor, ...],
        noise: Tensor, minibatch: Transitions,
    ) -> dict[str, Tensor]:  # fmt: skip
        stats = self._critic_step(critic, theta_target, lr, statistics, noise, minibatch)
        stats |= self._actor_step(actor, {"q": critic.phi}, lr, statistics, noise, minibatch.inputs)
        follow(theta_target, actor.theta, self.hyper.tau)
        return stats | self.targets_follow(critic)

    def actor_loss(
        self, theta: Tensor, guide: dict[str, Tensor], noise: Tensor, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Its gradient is the negated deterministic policy gradient, eq. 6."""
        value = self.q_functions.first(self.critic_layout, guide["q"], inputs, self.actor(theta, inputs))
        return -value.sum(-1).mean(), {}

    # -------------------------------------------------------------- critics and actors apart

    def set_target_policy(self, theta: Tensor) -> None:
        self.theta_target.copy_(theta)

    def critic_step(self, noise: Tensor, minibatch: Transitions) -> dict[str, Tensor]:
        arguments = (self.critic, self.theta_target, self.lr, self._statistics(), noise, minibatch)
        return self._take_step(self._critic_alone, *arguments)

    def _critic_alone(
        self, critic: Critic, theta_target: Tensor, lr: Tensor, statistics: tuple[Tensor, ...], noise: Tensor,
        minibatch: Transitions,
    ) -> dict[str, Tensor]:  # fmt: skip
        stats = self._critic_step(critic, theta_target, lr, statistics, noise, minibatch)
        return stats | self.targets_follow(critic)

    def actor(self, theta: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
        """Deterministic actions [N, K] for normalised inputs."""
        return self._outputs(theta, inputs, None, None).raw

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "policy_target": self.layout.copied(self.theta_target)}

    def load_policy(self, state: StateDict) -> None:
        super().load_policy(state)
        if "policy_target" not in state:
            raise ValueError("it has no target actor")
        self.layout.load(self.theta_target, state["policy_target"])
