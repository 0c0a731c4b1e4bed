"""Losses of policies and critics, to be minimised, and the numbers that describe an update.

They run inside gradient steps of a few hundred tiny operations, so each spends as few operations as it can.
Old quantities, advantages and targets are data: no gradient flows through them. N is any number of
decisions, in one axis or several. Arrays of other shapes raise ValueError.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from evorl.ops.shapes import check_shapes

LARGEST = 88.0
"""The largest whole number whose exponential is a float32. An infinite ratio would have no gradient, not even 0."""


def ppo_clip(logp: Tensor, old_logp: Tensor, advantage: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """The clipped surrogate, negated, and the fraction of samples it clips, both [] (Schulman et al. 2017, eq. 7)."""
    surrogate, clipped = clipped_surrogate(logp, old_logp, advantage, clip)
    return -surrogate.mean(), clipped.mean(dtype=logp.dtype)


def clipped_surrogate(logp: Tensor, old_logp: Tensor, advantage: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """min(r A, clip(r) A) with r = new / old of each sample, and which samples it clips, both [N] as all inputs.

    A clipped sample is one that contributes no gradient: its ratio has left [1-ε, 1+ε] on the side to which its
    advantage pushes (Schulman et al. 2017, eq. 7).
    """
    check_shapes(logp=(logp, "..."), old_logp=(old_logp, "..."), advantage=(advantage, "..."))
    old_logp, advantage = old_logp.detach(), advantage.detach()
    surrogate = (logp - old_logp).clamp(max=LARGEST).exp() * advantage
    bound = advantage + clip * advantage.abs()  # min(r A, clip(r) A) = min(r A, A + ε |A|): half the operations
    return surrogate.clamp(max=bound), surrogate.detach() > bound


def policy_gradient(logp: Tensor, advantage: Tensor) -> Tensor:
    """-mean(log π(a|s) A), [], of inputs [N]: its gradient is the negated policy gradient (Williams 1992)."""
    check_shapes(logp=(logp, "..."), advantage=(advantage, "..."))
    return -(logp * advantage.detach()).mean()


def value_loss(value: Tensor, target: Tensor, old_value: Tensor | None = None, clip: float | None = None) -> Tensor:
    """Mean squared error of a critic, [], of inputs [N] or [N, R].

    With ``clip``, the larger of the errors of the value and of the value kept within ``clip`` of ``old_value``
    (public implementations of PPO; Engstrom et al. 2020, section 3). Raises ValueError for a clip without old values.
    """
    check_shapes(value=(value, "..."), target=(target, "..."))
    target = target.detach()
    if clip is None:
        return F.mse_loss(value, target)
    if old_value is None:
        raise ValueError("a clipped value loss needs old_value")
    check_shapes(value=(value, "..."), old_value=(old_value, "..."))
    old_value = old_value.detach()
    near = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum((value - target).square(), (near - target).square()).mean()


@torch.no_grad()
def approximate_kl(logp: Tensor, old_logp: Tensor) -> Tensor:
    """KL(old || new), [], estimated from samples [N] of the old policy: unbiased, never negative.

    Mean of r - 1 - log r with r = new / old (Schulman 2020, "Approximating KL divergence", k3).
    """
    check_shapes(logp=(logp, "..."), old_logp=(old_logp, "..."))
    log_ratio = (logp - old_logp).clamp(max=LARGEST)
    return (log_ratio.expm1() - log_ratio).mean()


@torch.no_grad()
def normalize(advantage: Tensor) -> Tensor:
    """Shifted and scaled to mean 0 and standard deviation 1 over all its elements; all zero where they are equal."""
    # (x - mean) / sqrt(variance + eps) in one operation; eps shows only where the deviation is below 1e-5
    return F.layer_norm(advantage, advantage.shape, eps=1e-12)


def normalize_within(advantage: Tensor, mask: Tensor) -> Tensor:
    """The same over the elements of a mask; 0 outside it."""
    count = mask.sum().clamp(min=1)
    largest = torch.where(mask, advantage, -torch.inf).amax()
    centred = torch.where(mask, advantage - largest, 0.0)  # around one of them: equal ones vary by exactly 0
    centred = torch.where(mask, centred - centred.sum() / count, 0.0)
    variance = centred.square().sum() / count
    return centred * (variance + 1e-12).rsqrt()


@torch.no_grad()
def explained_variance(value: Tensor, target: Tensor) -> Tensor:
    """1 - Var(target - value) / Var(target), []: 1 is perfect, 0 as good as any constant; 0 where no target varies."""
    check_shapes(value=(value, "..."), target=(target, "..."))
    total = (target - target.reshape(-1)[0]).var(correction=0)  # around one of them: equal ones vary by exactly 0
    return torch.where(total > 0, 1 - (target - value).var(correction=0) / total, 0.0)
