"""IMPALA's V-trace actor-critic (Espeholt et al. 2018, arXiv 1802.01561) with a replay of rollouts.

Beyond the paper, each on request: the policy and value cloning of CLEAR (Rolnick et al. 2019, arXiv 1811.11682) and
the KL mask of LASER (Schmitt et al. 2020, arXiv 1909.11583).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from evorl.mdp.core import Discrete, Spec
from evorl.nets.distributions import implied, kl
from evorl.ops.returns import vtrace
from evorl.replay.samplers.queue import Queue
from evorl.rl.rollout_replay import Decided, LossInputs, RolloutHyper, RolloutLearner, product
from evorl.util.errors import BadRequest
from evorl.util.types import NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class VTrace(RolloutHyper):
    correction: Literal["vtrace", "none"] = "vtrace"
    """V-trace, or nothing: as if the present policy had acted (the ratio is 1)."""
    rho_bar: Positive = 1.0
    """Clip of the ratio in temporal differences: decides which policy's values are learned."""
    c_bar: Positive = 1.0
    """Clip of the ratio in traces: decides how far back a difference reaches."""
    rho_pg_bar: Positive = 1.0
    """Clip of the ratio in the policy gradient."""
    clone_policy: NonNegative = 0.0
    """Weight of the KL divergence from the policy that acted (CLEAR); 0: none."""
    clone_value: NonNegative = 0.0
    """Weight of the distance to the values of the critic that acted (CLEAR); 0: none."""
    clone_kl: Literal["behaviour", "policy"] = "behaviour"
    """KL(behaviour || policy), or KL(policy || behaviour)."""
    clone_error: Literal["squared", "norm"] = "squared"
    """Of values: the squared error, or the Euclidean norm of all errors of a minibatch."""
    clone_on: Literal["replayed", "all"] = "replayed"
    """Which rollouts are cloned: all but those of the queue, or all. Those of a circular buffer are replayed."""
    kl_mask: Positive | None = None
    """Learn only in states with a smaller KL divergence from the mask's policy (LASER); null: in all."""
    kl_mask_to: Literal["implied", "behaviour"] = "implied"
    """That policy: the one whose values V-trace estimates, or the one that acted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learners > 1 and self.clone_value and self.clone_error == "norm":
            raise BadRequest("the norm of all errors is no mean over learners; take clone_error=squared", "learners")

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


class Learner(RolloutLearner[VTrace]):
    def __init__(self, hyper: VTrace, spec: Spec, seed: int, device: torch.device) -> None:
        if hyper.kl_mask is not None and hyper.kl_mask_to == "implied" and not isinstance(spec.action, Discrete):
            raise BadRequest(
                "the implied policy is known for a single discrete action only; take rl.kl_mask_to=behaviour",
                "rl.kl_mask",
            )
        replayed = {*hyper.mix.shares} - {Queue.name}
        if (hyper.clone_policy or hyper.clone_value) and hyper.clone_on == "replayed" and not replayed:
            raise BadRequest("no rollout is replayed with rl.sampling=queue; take rl.clone_on=all", "rl.clone_on")
        super().__init__(hyper, spec, seed, device)

    def loss(self, theta: Tensor, data: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        columns, weight, coefficients = data.columns, data.weight, data.coefficients
        decided = self._decided(theta, data.statistics, columns)
        trusted = self._trusted(decided, columns)
        target, advantage = self._targets(decided, trusted, columns, coefficients.gamma, coefficients.lam)
        error = target - decided.value[:-1]
        policy = -self._total(decided.log_prob * advantage.sum(-1), weight, trusted)  # section 4.2
        value = self._total(self._over_rewards(error.square()), weight, trusted)
        entropy = self._total(decided.entropy, weight)
        stats = {"loss/policy": policy, "loss/value": value, "policy/entropy": decided.entropy.mean()}
        loss = policy + coefficients.critic * value - coefficients.entropy * entropy
        for name, coefficient, cloned in self._cloned(decided, trusted, columns, weight):
            loss, stats[name] = loss + coefficient * cloned, cloned
        stats |= self._described_ratios(decided, columns)
        stats |= self._clip_fractions((decided.log_prob - columns["log_prob"]).exp() > self.hyper.rho_bar)
        if trusted is not None:
            stats["policy/rejected"] = 1 - trusted.mean()
        if weight is not None:
            stats["error"] = error.sum(-1)
        return loss, stats

    @torch.no_grad()
    def _targets(
        self, decided: Decided, trusted: Tensor | None, columns: Mapping[str, Tensor], gamma: Tensor, lam: Tensor
    ) -> tuple[Tensor, Tensor]:
        """V-trace targets and advantages [T, N, R]. A state that the mask rejects cuts the trace."""
        log_ratio = decided.log_prob - columns["log_prob"]
        if self.hyper.correction == "none":
            log_ratio = torch.zeros_like(log_ratio)
        done = columns["done"]
        following = torch.where(done.unsqueeze(-1), columns["final_value"], decided.value[1:])
        return vtrace(
            log_ratio, columns["reward"], decided.value[:-1], following, done, gamma,
            lam=lam if trusted is None else lam * trusted.unsqueeze(-1),
            clip_rho=self.hyper.rho_bar, clip_c=self.hyper.c_bar, clip_pg=self.hyper.rho_pg_bar,
        )  # fmt: skip

    @torch.no_grad()
    def _trusted(self, decided: Decided, columns: Mapping[str, Tensor]) -> Tensor | None:
        """LASER's mask [T, N]: one in states where the policy is near the mask's, zero elsewhere, whatever was done."""
        h, acted = self.hyper, columns["policy"]
        if h.kl_mask is None:
            return None
        other = implied(decided.policy, acted, decided.legal, h.rho_bar) if h.kl_mask_to == "implied" else acted
        return (kl(self.spec.action, decided.policy, other, decided.legal) < h.kl_mask).to(decided.log_prob.dtype)

    @cached_property
    def _where_cloned(self) -> slice:
        """The rollouts of a minibatch that are cloned. Those of a queue, the only ones without a past, come first."""
        fresh = self.slices.get(Queue.name, slice(0))
        return slice(fresh.stop if self.hyper.clone_on == "replayed" else 0, None)

    def _cloned(
        self, decided: Decided, trusted: Tensor | None, columns: Mapping[str, Tensor], weight: Tensor | None
    ) -> list[tuple[str, float, Tensor]]:
        """CLEAR's losses of cloning, each with its name and weight, over decisions of all or of replayed rollouts."""
        h, where = self.hyper, self._where_cloned
        factors = (None if weight is None else weight[where], None if trusted is None else trusted[:, where])
        losses = []
        if h.clone_policy:
            pair = (
                (columns["policy"], decided.policy)
                if h.clone_kl == "behaviour"
                else (decided.policy, columns["policy"])
            )
            far = kl(self.spec.action, *pair, decided.legal)[:, where]
            losses.append(("loss/clone_policy", h.clone_policy, self._total(far, *factors)))
        if h.clone_value:
            error = (decided.value - columns["value"])[:-1, where]
            squared = self._total(self._over_rewards(error.square()), *factors)
            norm = product(error.movedim(-1, 0), *factors).norm()
            losses.append(("loss/clone_value", h.clone_value, squared if h.clone_error == "squared" else norm))
        return losses
