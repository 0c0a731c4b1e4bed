"""Returns and advantages of fragments of experience.

Letters: T decisions in order, B slots, R named rewards. Rewards and values are [T, B] or
[T, B, R]; a discount is a number or, one for each named reward, a tensor [R].

* ``reward[t]`` follows action t, which was chosen in the state of ``value[t]``.
* ``next_value[t]`` is the value of the state that followed: of the next state within an episode, of the
  state it was cut at where the episode was truncated, and zero where it terminated.
* ``done[t]``, bool [T, B], says that the episode ended with action t, either way.

So ``done`` decides where a sum over time stops, and ``next_value`` what stands for the rest. The end of the
fragment is a truncation too. Everything here is a target: no gradient flows through it.
Arrays of other shapes raise ValueError.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evorl.ops.shapes import check_shapes

Discount = float | Tensor


@torch.no_grad()
def gae(reward: Tensor, value: Tensor, next_value: Tensor, done: Tensor, gamma: Discount, lam: Discount) -> Tensor:
    """Generalised advantage estimates, shaped as ``reward`` (Schulman et al. 2016, arXiv 1506.02438).

    The critic's target is ``advantage + value``, the λ-return.
    """
    _check(reward, done, value=value, next_value=next_value)
    delta = reward + gamma * next_value - value  # eq. 10
    return _accumulate(delta, gamma * lam * _goes_on(done, reward))  # eq. 16


@torch.no_grad()
def vtrace(
    log_ratio: Tensor,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    done: Tensor,
    gamma: Discount,
    *,
    lam: Discount = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    clip_pg: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Off-policy targets of the critic and advantages of the policy, both shaped as ``reward``.

    ``log_ratio`` [T, B] is log π(a|s) - log μ(a|s): of the policy that learns, less that of the one that acted.
    ``lam`` [T, B, R] may differ from step to step; without ``clip_pg`` the policy gradient's ratio is clipped as ρ is.
    Espeholt et al. 2018, arXiv 1802.01561: eq. 1 with λ of remark 2, and the policy gradient of section 4.2.
    """
    _check(reward, done, value=value, next_value=next_value)
    check_shapes(done=(done, "T B"), log_ratio=(log_ratio, "T B"))
    ratio = _align(log_ratio.exp(), reward)
    rho, c = ratio.clamp(max=clip_rho), lam * ratio.clamp(max=clip_c)
    goes_on = _goes_on(done, reward)
    delta = rho * (reward + gamma * next_value - value)
    correction = _accumulate(delta, gamma * c * goes_on)  # v_s - V(x_s), as in remark 1
    next_target = next_value + goes_on * torch.cat((correction[1:], torch.zeros_like(correction[:1])))
    rho_pg = rho if clip_pg is None else ratio.clamp(max=clip_pg)
    return value + correction, rho_pg * (reward + gamma * next_target - value)


def _accumulate(x: Tensor, decay: Tensor) -> Tensor:
    """y_t = x_t + decay_t y_{t+1}, from y_T = 0: a scan in log2(T) strides, each over all of [T, B, ...].

    After the stride s, y_t holds the terms t to t + 2s - 1 and decay_t the product over them (Hillis & Steele 1986).
    Which terms are added in which order depends on their distance only, not on where in the fragment they stand.
    """
    y = x.clone()
    stride = 1
    while stride < len(y):
        y[:-stride].add_(decay[: len(y) - stride] * y[stride:])
        decay = decay[:-stride] * decay[stride:]
        stride *= 2
    return y


def _goes_on(done: Tensor, like: Tensor) -> Tensor:
    """One where the episode went on after the action, zero where it ended."""
    return (~_align(done, like)).to(like.dtype)


def _align(x: Tensor, like: Tensor) -> Tensor:
    """[T, B] as it broadcasts against [T, B] or [T, B, R]."""
    return x.reshape(*x.shape, *(1 for _ in like.shape[2:]))


def _check(reward: Tensor, done: Tensor, **values: Tensor) -> None:
    shaped = {name: (value, "T B ...") for name, value in values.items()}
    check_shapes(reward=(reward, "T B ..."), **shaped, done=(done, "T B"))
