"""Losses of action values: of numbers, of a categorical distribution (C51) and of quantiles (QR).

Letters in shapes: N values, M atoms of each one's distribution. ``...`` stands for any number of leading axes. Targets
are data: no gradient flows through them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def huber(error: Tensor, delta: float) -> Tensor:
    """error^2 / 2 up to ``delta`` and linear beyond, [...] (Huber 1964): its gradient is the error clipped to it."""
    near = error.abs().clamp(max=delta)
    return near * (error.abs() - 0.5 * near)


def project(position: Tensor, probability: Tensor, support: Tensor) -> Tensor:
    """Project atoms at ``position`` [..., M] with ``probability`` [..., M] onto an even ``support`` [M], [..., M].

    Bellemare et al. 2017, eq. 7: each atom gives its probability to the two nearest places, in proportion. What lies
    outside the support goes to its end.
    """
    low, high, step = support[0], support[-1], support[1] - support[0]
    distance = (position.clamp(low, high)[..., None, :] - support[:, None]).abs() / step  # [..., place, atom]
    return ((1 - distance).clamp(0, 1) * probability[..., None, :]).sum(-1)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """-sum_i target_i log p_i, [...], of logits and probabilities [..., M] (Bellemare et al. 2017, algorithm 1)."""
    return -(target.detach() * logits.log_softmax(-1)).sum(-1)


def entropy(probability: Tensor) -> Tensor:
    """-sum_i p_i log p_i, [...], of probabilities [..., M]; a probability of 0 adds nothing."""
    nats: Tensor = torch.special.entr(probability).sum(-1)
    return nats


def quantile_huber(quantiles: Tensor, target: Tensor, kappa: float) -> Tensor:
    """The quantile Huber loss [...] of quantiles [..., M] towards samples of their targets [..., M].

    Dabney et al. 2018, eq. 9 and 10 and algorithm 1: the sum over the quantiles at (2 i - 1) / (2 M), the mean over the
    samples.
    """
    count = quantiles.shape[-1]
    at = (torch.arange(count, device=quantiles.device) + 0.5) / count
    error = target.detach()[..., None, :] - quantiles[..., :, None]  # [..., quantile, sample]
    weight = (at[:, None] - (error.detach() < 0).to(error.dtype)).abs()
    return (weight * huber(error, kappa)).mean(-1).sum(-1)
