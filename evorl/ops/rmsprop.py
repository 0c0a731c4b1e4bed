"""RMSProp (Tieleman & Hinton 2012, lecture 6.5) on one flat parameter vector, without momentum.

Written out for the reasons of `evorl.ops.adam`. Tested equal to torch.optim.RMSprop.
"""

from __future__ import annotations

from torch import Tensor


def rmsprop(theta: Tensor, gradient: Tensor, v: Tensor, lr: Tensor, decay: float, epsilon: float) -> None:
    """One step, in place, on theta and v [D]; ``lr`` is a tensor [], ``decay`` the share of the past in v."""
    v.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)  # v_t = decay v + (1 - decay) g^2
    theta.sub_(lr * gradient / (v.sqrt() + epsilon))  # theta -= lr g / (sqrt(v) + eps)
