"""IMPACT: the clipped surrogate with a target network and a circular buffer (Luo et al. 2019, arXiv 1912.00167).

Asynchronous PPO: the learner takes several gradient steps on each batch, though the policies that acted are many and
old. What the surrogate's ratio and V-trace's corrections refer to is a target network, which stands still meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from evorl.mdp.core import Spec, StateDict
from evorl.nets.distributions import kl
from evorl.nets.trees import Tree
from evorl.ops.losses import clipped_surrogate
from evorl.ops.returns import vtrace
from evorl.replay.samplers.registry import Sampling, in_shares
from evorl.rl.data_parallel import GradientStep
from evorl.rl.network_learner import Network
from evorl.rl.rollout_replay import Decided, LossInputs, RolloutHyper, RolloutLearner
from evorl.util.types import Count, Natural, Positive


@dataclass(frozen=True, kw_only=True)
class Impact(RolloutHyper):
    clip: Positive = 0.4
    """Range of the surrogate's ratio, epsilon."""
    worker_clip: Positive = 2.0
    """Cap of the ratio of the policy that acted (the worker's) to the target's in the surrogate, rho."""
    rho_bar: Positive = 1.0
    """Clip of the ratio in temporal differences."""
    c_bar: Positive = 1.0
    """Clip of the ratio in traces."""
    target_every: Count | None = None
    """Gradient steps between copies of the network to its target; null: batches x passes of the circular buffer."""
    fill_in: Natural = 0
    sampling: Sampling = field(default_factory=lambda: in_shares(circular=1.0))

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


class Learner(RolloutLearner[Impact]):
    theta_target: Tensor

    def __init__(self, hyper: Impact, spec: Spec, seed: int, device: torch.device) -> None:
        super().__init__(hyper, spec, seed, device)
        self.theta_target = self.theta.clone()
        circular = hyper.replay.circular
        self.target_every = hyper.target_every or circular.batches * circular.passes

    def own(self) -> tuple[Tree, ...]:
        return (*super().own(), self.theta_target)

    def steps(self) -> tuple[GradientStep, ...]:
        return self._optimise, self._copy_and_optimise

    def _due_step(self) -> GradientStep:
        copies = self.gradient_steps % self.target_every == 0  # algorithm 1: t = 0 (mod t_target)
        return self._copy_and_optimise if copies else self._optimise

    def _copy_and_optimise(self, network: Network, theta_target: Tensor, *rest: Tree) -> dict[str, Tensor]:
        theta_target.copy_(network.theta)
        return self._optimise(network, theta_target, *rest)

    def loss(self, theta: Tensor, data: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        columns, weight, coefficients = data.columns, data.weight, data.coefficients
        decided, worker = self._decided(theta, data.statistics, columns), columns["log_prob"]
        assert data.theta_target is not None
        with torch.no_grad():
            then = self._decided(data.theta_target, data.statistics, columns)
            value_target, advantage = self._targets(then, columns, coefficients.gamma, coefficients.lam)
            # section 3.1: min(worker / target, rho) * now / worker is now / max(target, worker / rho)
            anchor = torch.maximum(then.log_prob, worker - math.log(self.hyper.worker_clip))
        surrogate, clipped = clipped_surrogate(decided.log_prob, anchor, advantage.sum(-1), self.hyper.clip)
        error = value_target - decided.value[:-1]
        policy = -self._total(surrogate, weight)
        value = self._total(self._over_rewards(error.square()), weight)
        entropy = self._total(decided.entropy, weight)
        stats = {"loss/policy": policy, "loss/value": value, "policy/entropy": decided.entropy.mean()}
        stats |= self._described_ratios(decided, columns)
        stats |= self._clip_fractions(clipped)
        with torch.no_grad():
            stats["policy/kl_target"] = kl(self.spec.action, then.policy, decided.policy, decided.legal).mean()
        if weight is not None:
            stats["error"] = error.sum(-1)
        return policy + coefficients.critic * value - coefficients.entropy * entropy, stats

    def _targets(
        self, then: Decided, columns: Mapping[str, Tensor], gamma: Tensor, lam: Tensor
    ) -> tuple[Tensor, Tensor]:
        """V-trace targets of the target network, and their advantages over its values (V-GAE), both [T, N, R]."""
        done, value = columns["done"], then.value[:-1]
        following = torch.where(done.unsqueeze(-1), columns["final_value"], then.value[1:])
        target, _ = vtrace(
            then.log_prob - columns["log_prob"], columns["reward"], value, following, done, gamma,
            lam=lam, clip_rho=self.hyper.rho_bar, clip_c=self.hyper.c_bar,
        )  # fmt: skip
        return target, target - value

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "policy_target": self.layout.copied(self.theta_target)}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.layout.load(self.theta_target, state["policy_target"])
