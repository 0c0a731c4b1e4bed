"""Action distributions as functions of a network's raw outputs.

Letters: N rows, L logits (all categorical heads side by side), K action components.
Categorical heads sample by the Gumbel-max trick (Gumbel 1954; Maddison et al. 2014), a Box by a
diagonal Gaussian. Both take their noise as an argument, so the caller decides its key.
Zero noise is the deterministic policy (the mode).

A Gaussian lives in units of the Box: component k of an action is ``centre + half_range * x`` where the
bounds are finite and ``x`` where they are not; what the world receives is clipped to its bounds.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.core import Action, Array, Box, Discrete, heads

LOG_STD = (-5.0, 2.0)
"""Between these a deviation that depends on the state is kept."""
MASKED = -1e9  # a logit so low that its probability is exactly 0 and its log still finite


def outputs(action: Action, state_std: bool) -> int:
    """How many raw outputs the policy head needs."""
    if isinstance(action, Box):
        return len(action.low) * (2 if state_std else 1)
    return sum(heads(action))


def noise_size(action: Action) -> int:
    """Noise components per decision: L for categorical heads, K for a Box."""
    return len(action.low) if isinstance(action, Box) else sum(heads(action))


def draw_noise(action: Action, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Noise float32 [*shape, noise_size]: standard Gumbel for categorical heads, standard normal for a Box."""
    size = (*shape, noise_size(action))
    if isinstance(action, Box):
        return generator.standard_normal(size, np.float32)
    exponential = generator.standard_exponential(size, np.float32)
    return -np.log(np.maximum(exponential, np.float32(1e-30)))  # -log E is Gumbel for E ~ Exp(1)


def parameter_count(action: Action) -> int:
    """How many numbers describe a policy in a state (`parameters`): L logits, or 2K of a Gaussian."""
    return 2 * len(action.low) if isinstance(action, Box) else sum(heads(action))


def parameters(action: Action, raw: Tensor, log_std: Tensor | None) -> Tensor:
    """The policy itself as numbers [..., P]: the logits, or means and log standard deviations."""
    return torch.cat(_gaussian(action, raw, log_std), -1) if isinstance(action, Box) else raw


def kl(action: Action, p: Tensor, q: Tensor, legal: Tensor | None) -> Tensor:
    """KL(p || q) [...] of two policies by their `parameters` [..., P]; the sum over heads or components."""
    if isinstance(action, Box):
        (mean_p, log_p), (mean_q, log_q) = p.chunk(2, -1), q.chunk(2, -1)
        distance = (mean_p - mean_q).square() * (-2 * log_q).exp()
        return (log_q - log_p + ((2 * (log_p - log_q)).exp() + distance - 1) / 2).sum(-1)
    parts = zip(_masked(p, legal).split(heads(action), -1), _masked(q, legal).split(heads(action), -1), strict=True)
    logs = [(head_p.log_softmax(-1), head_q.log_softmax(-1)) for head_p, head_q in parts]
    return torch.stack([(log_p.exp() * (log_p - log_q)).sum(-1) for log_p, log_q in logs]).sum(0)


def implied(pi: Tensor, mu: Tensor, legal: Tensor | None, clip_rho: float) -> Tensor:
    """The policy whose values V-trace estimates, as logits [..., L] from those of pi and mu, one categorical head.

    It is min(clip_rho mu, pi), normalised (Espeholt et al. 2018, eq. 2).
    """
    log_pi, log_mu = _masked(pi, legal).log_softmax(-1), _masked(mu, legal).log_softmax(-1)
    return torch.minimum(log_mu + math.log(clip_rho), log_pi)


def _masked(logits: Tensor, legal: Tensor | None) -> Tensor:
    return logits if legal is None else logits.masked_fill(~legal, MASKED)


def _gaussian(action: Box, raw: Tensor, log_std: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and log standard deviation [N, K]."""
    k = len(action.low)
    if log_std is not None:
        return raw, log_std.expand_as(raw)
    return raw[..., :k], raw[..., k:].clamp(*LOG_STD)


def sample(action: Action, raw: Tensor, log_std: Tensor | None, legal: Tensor | None, noise: Tensor) -> Tensor:
    """The action under this noise [N, noise_size]: int64 [N, K] for categorical heads, float32 [N, K] for a Box."""
    if isinstance(action, Box):
        mean, log_sigma = _gaussian(action, raw, log_std)
        return mean + log_sigma.exp() * noise
    perturbed = _masked(raw, legal) + noise
    if isinstance(action, Discrete):
        return perturbed.argmax(-1, keepdim=True)
    return torch.stack([part.argmax(-1) for part in perturbed.split(heads(action), -1)], -1)


def log_prob_entropy(
    action: Action, raw: Tensor, log_std: Tensor | None, legal: Tensor | None, chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """log pi(chosen) [N] and the policy's entropy [N]; heads and components are independent, so both sum."""
    if isinstance(action, Box):
        mean, log_sigma = _gaussian(action, raw, log_std)
        z = (chosen - mean) * (-log_sigma).exp()
        log_prob = -(0.5 * z.square() + log_sigma).sum(-1) - 0.5 * math.log(2 * math.pi) * z.shape[-1]
        return log_prob, log_sigma.sum(-1) + 0.5 * math.log(2 * math.pi * math.e) * z.shape[-1]
    logits = _masked(raw, legal)
    if isinstance(action, Discrete):
        return _categorical(logits, chosen)
    parts = zip(logits.split(heads(action), -1), chosen.split(1, -1), strict=True)
    log_probs, entropies = zip(*(_categorical(part, head) for part, head in parts), strict=True)
    return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)


def _categorical(logits: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    logs = logits.movedim(-1, 0).log_softmax(0)  # a short last axis takes three times as long as the first
    return logs.gather(0, chosen.movedim(-1, 0)).squeeze(0), -(logs.exp() * logs).sum(0)


def to_world(action: Action, chosen: Tensor) -> Tensor:
    """What the world receives: a Box action scaled to its bounds and clipped to them; others as they are."""
    if not isinstance(action, Box):
        return chosen
    low, high = np.array(action.low, np.float32), np.array(action.high, np.float32)
    finite = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):  # of unbounded components
        affine = np.where(finite, low / 2 + high / 2, 0), np.where(finite, high / 2 - low / 2, 1), low, high
    # made here rather than of tensors: a captured decision then holds them, and does not compute them again
    centre, half, least, most = (torch.from_numpy(x.astype(np.float32)).to(chosen.device) for x in affine)
    return (centre + half * chosen).clamp(least, most)
