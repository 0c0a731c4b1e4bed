"""An invertible rescaling that makes large returns small (Pohlen et al. 2018, arXiv 1805.11593, section 3.2).

``h(x) = sgn(x) (sqrt(|x| + 1) - 1) + eps x``. Values in units of h(return) need no clipped rewards.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-3  # keeps the inverse Lipschitz continuous


def rescale(x: Tensor) -> Tensor:
    """h(x), [...]."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + EPSILON * x


def unscale(x: Tensor) -> Tensor:
    """The inverse of h, [...] (proposition A.2 there)."""
    y = x.abs() + 1 + EPSILON
    root = 2 * y / (1 + torch.sqrt(1 + 4 * EPSILON * y))  # (sqrt(1 + 4 eps y) - 1) / (2 eps) without its cancellation
    return x.sign() * (root.square() - 1)
