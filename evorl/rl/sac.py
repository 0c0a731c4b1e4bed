"""Soft actor-critic with automatic temperature (Haarnoja et al. 2018, arXiv 1812.05905, algorithm 1).

The actor maximises value plus entropy: its actions are tanh(u), u Gaussian with mean and deviation from the state. The
temperature alpha, the weight of the entropy, follows a target entropy of -1 per component of an action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from evorl.mdp.core import Spec, StateDict
from evorl.nets.distributions import LOG_STD
from evorl.nets.flat import copied, load
from evorl.nets.policy import Net
from evorl.ops.adam import adam
from evorl.rl.data_parallel import Split
from evorl.rl.off_policy import OffPolicy, OffPolicyHyper
from evorl.rl.replay_learner import follow, gap
from evorl.util.errors import BadRequest
from evorl.util.schedule import Schedule
from evorl.util.types import Positive


@dataclass(frozen=True, kw_only=True)
class SAC(OffPolicyHyper):
    lr: Schedule = 3e-4
    alpha: Positive = 1.0
    """The temperature at the start."""
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


class Learner(OffPolicy[SAC]):
    noises = 2  # of the next action, and of the actor's
    actor_noise = True

    def __init__(self, hyper: SAC, spec: Spec, seed: int, device: torch.device) -> None:
        super().__init__(hyper, spec, seed, device)
        self.target_entropy = -float(self.components) if hyper.target_entropy is None else hyper.target_entropy
        self.alpha = {name: torch.zeros((), device=device) for name in ("log", "m", "v", "t")}
        self.alpha["log"].fill_(math.log(hyper.alpha))

    def explore(self, raw: Tensor, noise: Tensor) -> Tensor:
        return squashed(raw, noise)[0]

    def tensors(self) -> list[Tensor]:
        return [*super().tensors(), *self.alpha.values()]

    def gradient_step(self, number: int, noise: Tensor, columns: list[Tensor]) -> dict[str, Tensor]:
        return self._take_step(
            self._step, self.phi, self.phi_target, *self.critic_adam.values(), self.theta, *self.adam.values(),
            *self.alpha.values(), self.lr, Split(noise, 1), *self._statistics(), *[Split(x, 0) for x in columns],
        )  # fmt: skip

    def _step(
        self, phi: Tensor, phi_target: Tensor, m: Tensor, v: Tensor, t: Tensor,
        theta: Tensor, actor_m: Tensor, actor_v: Tensor, actor_t: Tensor,
        log_alpha: Tensor, alpha_m: Tensor, alpha_v: Tensor, alpha_t: Tensor, lr: Tensor, noise: Tensor,
        *columns: Tensor,
    ) -> dict[str, Tensor]:  # fmt: skip
        stats = self._critic_step(phi, phi_target, m, v, t, theta, log_alpha, lr, noise, *columns)
        stats |= self._actor_step(theta, actor_m, actor_v, actor_t, lr, phi, log_alpha, noise, *columns)
        stats |= self._alpha_step(self._mean(stats["policy/entropy"]), log_alpha, alpha_m, alpha_v, alpha_t, lr)
        follow(phi_target, phi, self.hyper.tau)
        return {**stats, "value/target_gap": gap(phi, phi_target)}

    def _critic_step(
        self, phi: Tensor, phi_target: Tensor, m: Tensor, v: Tensor, t: Tensor, theta: Tensor, log_alpha: Tensor,
        lr: Tensor, noise: Tensor, *columns: Tensor,
    ) -> dict[str, Tensor]:  # fmt: skip
        inputs, action, reward, discount, following = self.split(columns)
        alpha = log_alpha.exp()
        with torch.no_grad():  # eq. 5 to 7
            next_action, log_prob = self.actor(theta, following, noise[0])
            next_value = self.q_values(phi_target, following, next_action).amin(0)
            bonus = alpha * log_prob[:, None] / reward.shape[1]  # the entropy counts once, whatever rewards there are
            target = reward + discount * (next_value - bonus)
        return self.critic_update(phi, m, v, t, lr, inputs, action, target)

    def actor_loss(
        self, theta: Tensor, guide: tuple[Tensor, ...], noise: Tensor, columns: tuple[Tensor, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Eq. 9."""
        phi, log_alpha = guide
        inputs = self.now(columns)
        drawn, log_prob = self.actor(theta, inputs, noise[1])
        value = self.q_values(phi, inputs, drawn).sum(-1).amin(0)
        return (log_alpha.exp() * log_prob - value).mean(), {"policy/entropy": -log_prob.detach().mean()}

    def _alpha_step(
        self, entropy: Tensor, log_alpha: Tensor, m: Tensor, v: Tensor, t: Tensor, lr: Tensor
    ) -> dict[str, Tensor]:
        alpha = log_alpha.exp()
        if self.hyper.learn_alpha:
            slope = alpha * (entropy - self.target_entropy)  # of eq. 18 by log alpha
            adam(log_alpha, slope, m, v, t, lr, self.hyper.adam_epsilon)
        return {"policy/temperature": alpha}

    # -------------------------------------------------------------- critics and actors apart

    def set_target_policy(self, theta: Tensor) -> None:
        self.theta.copy_(theta)

    def guide(self) -> dict[str, Tensor]:
        return {**super().guide(), "log_alpha": self.alpha["log"]}

    def critic_state(self) -> dict[str, Tensor]:
        return {**super().critic_state(), **{f"alpha_{name}": self.alpha[name] for name in ("m", "v", "t")}}

    def critic_step(self, noise: Tensor, columns: list[Tensor]) -> dict[str, Tensor]:
        """The temperature is the critics': it follows the entropy of their target policy."""
        return self._take_step(
            self._critic_alone, self.phi, self.phi_target, *self.critic_adam.values(), self.theta,
            *self.alpha.values(), self.lr, noise, *self._statistics(), *columns,
        )  # fmt: skip

    def _critic_alone(
        self, phi: Tensor, phi_target: Tensor, m: Tensor, v: Tensor, t: Tensor, theta: Tensor,
        log_alpha: Tensor, alpha_m: Tensor, alpha_v: Tensor, alpha_t: Tensor, lr: Tensor, noise: Tensor,
        *columns: Tensor,
    ) -> dict[str, Tensor]:  # fmt: skip
        stats = self._critic_step(phi, phi_target, m, v, t, theta, log_alpha, lr, noise, *columns)
        with torch.no_grad():
            entropy = -self.actor(theta, self.now(columns), noise[1])[1].mean()
        stats |= self._alpha_step(entropy, log_alpha, alpha_m, alpha_v, alpha_t, lr)
        follow(phi_target, phi, self.hyper.tau)
        return {**stats, "policy/entropy": entropy, "value/target_gap": gap(phi, phi_target)}

    def actor(self, theta: Tensor, inputs: tuple[Tensor, ...], noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [N, K] under this noise for normalised inputs, and their log-probabilities [N]."""
        return squashed(self._network(theta, inputs, None, None).raw, noise)

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        moments = copied(self.alpha)
        alpha = {"log": moments.pop("log")}
        return {**super().state_dict(), "alpha": alpha, "alpha_optimizer": moments}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        load({name: x for name, x in self.alpha.items() if name != "log"}, state["alpha_optimizer"])

    def load_policy(self, state: StateDict) -> None:
        """Load a learned temperature too: the critics' values contain the entropy with this weight."""
        super().load_policy(state)
        if self.hyper.learn_alpha:
            load({"log": self.alpha["log"]}, state["alpha"])


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
