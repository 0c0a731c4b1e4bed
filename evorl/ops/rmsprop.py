"""RMSProp (Tieleman & Hinton 2012, lecture 6.5) on one flat parameter vector, without momentum.

Written out for the reasons of `evorl.ops.adam`. Programs differ in where epsilon is, so both forms are here.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class RMSProp(NamedTuple):
    """What RMSProp keeps of past gradients."""

    mean_square: Tensor  # [D]


def rmsprop(theta: Tensor, gradient: Tensor, past: RMSProp, lr: Tensor, decay: float, epsilon: float) -> None:
    """One step, in place, on theta [D] and the mean of squares v; ``lr`` is a tensor [], ``decay`` the share of the
    past in v.

    v begins at 0. Tested equal to torch.optim.RMSprop.
    """
    (v,) = past
    v.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)  # v_t = decay v + (1 - decay) g^2
    theta.sub_(lr * gradient / (v.sqrt() + epsilon))  # theta -= lr g / (sqrt(v) + eps)


def rmsprop_tf(theta: Tensor, gradient: Tensor, past: RMSProp, lr: Tensor, decay: float, epsilon: float) -> None:
    """As `rmsprop`, with epsilon under the root: Mnih et al. 2016 (arXiv 1602.01783), section 4, and TensorFlow 1.

    In TensorFlow 1 and in Stable-Baselines3 v begins at 1, so that the first steps are small.
    """
    (v,) = past
    v.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)  # v_t = decay v + (1 - decay) g^2, the paper's g
    theta.sub_(lr * gradient / (v + epsilon).sqrt())  # theta -= lr g / sqrt(v + eps)
