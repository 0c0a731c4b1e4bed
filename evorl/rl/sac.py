"""Soft actor-critic with automatic temperature (Haarnoja et al. 2018, arXiv 1812.05905, algorithm 1).

The actor maximises value plus entropy: its actions are tanh(u), u Gaussian with mean and deviation from the state. The
temperature alpha, the weight of the entropy, follows a target entropy of -1 per component of an action. Returns of n
steps (`n_step`) leave out the entropies of the steps in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from evorl.mdp.core import Spec, StateDict
from evorl.nets.distributions import LOG_STD
from evorl.nets.flat import copied, load
from evorl.nets.policy import Net
from evorl.nets.trees import Tree
from evorl.ops.adam import Adam, adam
from evorl.rl.data_parallel import GradientStep, Split
from evorl.rl.network_learner import Network
from evorl.rl.off_policy import Critic, OffPolicy, OffPolicyHyper
from evorl.rl.replay_learner import Transitions
from evorl.util.errors import BadRequest
from evorl.util.schedule import Schedule
from evorl.util.types import Positive


@dataclass(frozen=True, kw_only=True)
class SAC(OffPolicyHyper):
    lr: Schedule = 3e-4
    alpha: Positive = 1.0
    """Temperature, the weight of the entropy, at the start."""
    target_entropy: float | None = None
    """In nats; null is -1 for each component of an action."""
    learn_alpha: bool = True
    """Whether the temperature follows the target entropy; false keeps it."""
    net: Net = field(default_factory=lambda: Net(hidden=(256, 256), activation="relu", std="state"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.net.std != "state" or self.net.output != "linear":
            raise BadRequest("a squashed Gaussian needs std=state and output=linear", "net.std")

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


class Temperature(NamedTuple):
    log: Tensor  # [] of alpha
    adam: Adam


class Learner(OffPolicy[SAC]):
    noises = 2  # of the next action, and of the actor's
    actor_noise = True

    def __init__(self, hyper: SAC, spec: Spec, seed: int, device: torch.device) -> None:
        super().__init__(hyper, spec, seed, device)
        self.target_entropy = -float(self.components) if hyper.target_entropy is None else hyper.target_entropy
        log_alpha = torch.full((), math.log(hyper.alpha), device=device)
        self.temperature = Temperature(log_alpha, Adam.of(log_alpha))

    def explore(self, raw: Tensor, noise: Tensor) -> Tensor:
        return squashed(raw, noise)[0]

    def own(self) -> tuple[Tree, ...]:
        return (*super().own(), self.temperature)

    def steps(self) -> tuple[GradientStep, ...]:
        return (self._step,)

    def gradient_step(self, number: int, noise: Tensor, minibatch: Transitions) -> dict[str, Tensor]:
        return self._take_step(
            self._step, self.critic, self.network, self.temperature, self.lr, self._statistics(),
            Split(noise, 1), Split(minibatch, 0),
        )  # fmt: skip

    def _step(
        self, critic: Critic, actor: Network, temperature: Temperature, lr: Tensor, statistics: tuple[Tensor, ...],
        noise: Tensor, minibatch: Transitions,
    ) -> dict[str, Tensor]:  # fmt: skip
        guide = {"q": critic.phi, "log_alpha": temperature.log}
        stats = self._critic_step(critic, actor.theta, temperature.log, lr, statistics, noise, minibatch)
        stats |= self._actor_step(actor, guide, lr, statistics, noise, minibatch.inputs)
        stats |= self._temperature_step(temperature, self._mean(stats["policy/entropy"]), lr)
        return stats | self.targets_follow(critic)

    def _critic_step(
        self, critic: Critic, theta: Tensor, log_alpha: Tensor, lr: Tensor, statistics: tuple[Tensor, ...],
        noise: Tensor, minibatch: Transitions,
    ) -> dict[str, Tensor]:  # fmt: skip
        inputs, following = (self.normalized(statistics, x) for x in (minibatch.inputs, minibatch.following))
        reward, alpha = minibatch.reward, log_alpha.exp()
        with torch.no_grad():  # eq. 5 to 7
            next_action, log_prob = self.actor(theta, following, noise[0])
            next_value = self.q_values(critic.target, following, next_action).amin(0)
            bonus = alpha * log_prob[:, None] / reward.shape[1]  # the entropy counts once, whatever rewards there are
            target = reward + minibatch.discount * (next_value - bonus)
        return self.critic_update(critic, lr, inputs, minibatch.action, target)

    def actor_loss(
        self, theta: Tensor, guide: dict[str, Tensor], noise: Tensor, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Eq. 9."""
        drawn, log_prob = self.actor(theta, inputs, noise[1])
        value = self.q_values(guide["q"], inputs, drawn).sum(-1).amin(0)
        return (guide["log_alpha"].exp() * log_prob - value).mean(), {"policy/entropy": -log_prob.detach().mean()}

    def _temperature_step(self, temperature: Temperature, entropy: Tensor, lr: Tensor) -> dict[str, Tensor]:
        alpha = temperature.log.exp()
        if self.hyper.learn_alpha:
            slope = alpha * (entropy - self.target_entropy)  # of eq. 18 by log alpha
            adam(temperature.log, slope, temperature.adam, lr, self.hyper.adam_epsilon)
        return {"policy/temperature": alpha}

    # -------------------------------------------------------------- critics and actors apart

    def set_target_policy(self, theta: Tensor) -> None:
        self.theta.copy_(theta)

    def guide(self) -> dict[str, Tensor]:
        return {**super().guide(), "log_alpha": self.temperature.log}

    def critic_state(self) -> dict[str, Tensor]:
        return {**super().critic_state(), **{f"alpha_{name}": x for name, x in self.temperature.adam._asdict().items()}}

    def critic_step(self, noise: Tensor, minibatch: Transitions) -> dict[str, Tensor]:
        """The temperature is the critics': it follows the entropy of their target policy."""
        arguments = (self.critic, self.theta, self.temperature, self.lr, self._statistics(), noise, minibatch)
        return self._take_step(self._critic_alone, *arguments)

    def _critic_alone(
        self, critic: Critic, theta: Tensor, temperature: Temperature, lr: Tensor, statistics: tuple[Tensor, ...],
        noise: Tensor, minibatch: Transitions,
    ) -> dict[str, Tensor]:  # fmt: skip
        stats = self._critic_step(critic, theta, temperature.log, lr, statistics, noise, minibatch)
        with torch.no_grad():
            entropy = -self.actor(theta, self.normalized(statistics, minibatch.inputs), noise[1])[1].mean()
        stats |= self._temperature_step(temperature, entropy, lr)
        return {**stats, "policy/entropy": entropy, **self.targets_follow(critic)}

    def actor(self, theta: Tensor, inputs: tuple[Tensor, ...], noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [N, K] under this noise for normalised inputs, and their log-probabilities [N]."""
        return squashed(self._outputs(theta, inputs, None, None).raw, noise)

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        log_alpha, adam = self.temperature
        alpha = {"alpha": copied({"log": log_alpha}), "alpha_optimizer": copied(adam._asdict())}
        return {**super().state_dict(), **alpha}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        load(self.temperature.adam._asdict(), state["alpha_optimizer"])

    def load_policy(self, state: StateDict) -> None:
        """Load a learned temperature too: the critics' values contain the entropy with this weight."""
        super().load_policy(state)
        if self.hyper.learn_alpha:
            load({"log": self.temperature.log}, state["alpha"])


def squashed(raw: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions tanh(u) [N, K] of raw outputs [N, 2 K] under this noise, and their log-probabilities [N].

    log pi(a) = log N(u) - sum log(1 - tanh(u)^2) (appendix C, eq. 26). The last logarithm is written as
    2 (log 2 - u - softplus(-2 u)), which is exact where tanh(u) rounds to 1.
    """
    mean, log_std = raw.chunk(2, -1)
    log_std = log_std.clamp(*LOG_STD)
    u = mean + log_std.exp() * noise
    gaussian = (-0.5 * noise.square() - log_std).sum(-1) - 0.5 * math.log(2 * math.pi) * noise.shape[-1]
    slope = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    return torch.tanh(u), gaussian - slope.sum(-1)
