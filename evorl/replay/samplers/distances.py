"""How far two feature vectors are apart, summed over a rollout: 0 for equal ones, larger for less similar ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from evorl.replay.rollouts import Array

Distance = Literal["p_norm", "cosine", "kl"]


def p_norm(new: Array, old: Array, p: float = 2.0) -> Array:
    """The p-norm [N] of the difference of features [N, T, F], over all T * F numbers."""
    difference = np.abs(new - old).reshape(len(new), -1)
    # in units of a power of 2, so that a high power is neither infinite nor 0 in float32, and no bit is rounded
    _, exponent = np.frexp(difference.max(-1))
    parts = np.ldexp(difference, -exponent[:, None])
    total: Array = np.ldexp((parts**p).sum(-1, dtype=np.float64) ** (1 / p), exponent)
    return total


def cosine(new: Array, old: Array) -> Array:
    """1 - cosine similarity [N] of features [N, T, F] as flat vectors; 1 where one of them is zero."""
    a, b = _flat(new), _flat(old)
    product = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    similarity = np.where(product > 0, (a * b).sum(-1) / np.where(product > 0, product, 1), 0)
    distance: Array = np.maximum(1 - similarity, 0)
    return distance


def kl(new: Array, old: Array) -> Array:
    """KL(now || then) [N] of features [N, T, F] as logits of a distribution over F, summed over T."""
    p, q = _log_softmax(new), _log_softmax(old)
    distance: Array = np.maximum((np.exp(p) * (p - q)).sum((1, 2)), 0)
    return distance


def distance(name: Distance, p: float) -> Callable[[Array, Array], Array]:
    """The distance of this name."""
    return {"p_norm": lambda new, old: p_norm(new, old, p), "cosine": cosine, "kl": kl}[name]


def _flat(x: Array) -> Array:
    return x.reshape(len(x), -1).astype(np.float64)


def _log_softmax(x: Array) -> Array:
    x = x.astype(np.float64) - x.max(-1, keepdims=True)
    shifted: Array = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return shifted
