"""AES-RL: asynchronous evolution strategy with gradients (Lee et al. 2020, "An Efficient Asynchronous Method for
Integrating Evolutionary and Gradient-based Policy Search").

Each individual x, evolved or trained, moves the distribution alone, as soon as its return R is known:

    mu'  = (1 - p) mu + p x
    v'   = v + ((x - mu)(x - mu') - v) / n          (Welford's recurrence, elementwise)

p comes from R and the return M of the present mean, by one of four rules with a scale D:

    fixed_linear         p = (R - M) / D, within [-1, 1]; times ``negative`` below 0
    fixed_sigmoid        p = 1 / (1 + exp(-(R - M) / D))
    baseline_absolute    p = (R - b) / ((R - b) + (M - b)), 0 where R <= b
    baseline_relative    the same with b = M - D: p = (R - M + D) / (R - M + 2 D)

n is a constant, or adapts to p: n = max(1/p - 1, 1).

What differs from the authors' code: an individual above an absolute baseline that the mean has not reached moves the
mean all the way (p = 1); there the rule divides by zero or gives 0 or 1 by chance, which ``unreached=formula`` repeats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evorl.ec.core import Metrics
from evorl.ec.shared_critic import MeanComparing, SteadyState
from evorl.ec.space import Coordinates, Space
from evorl.util.types import AtLeastOne, Fraction, Positive

LEAST_WEIGHT = 1e-3  # below it the variance stays, as in the authors' code


@dataclass(frozen=True, kw_only=True)
class AESRL(MeanComparing):
    """Constants of the authors' code; ``scale`` depends on the world, about a fifth of the return to expect."""

    mean_rule: Literal["fixed_linear", "fixed_sigmoid", "baseline_absolute", "baseline_relative"] = "baseline_relative"
    """How the weight p of an individual follows from its return."""
    variance_rule: Literal["adaptive", "fixed"] = "adaptive"
    """Whether n follows from p, or is ``variance_n``."""
    scale: Positive = 2000.0
    """D of the mean rules, in units of the return."""
    baseline: float | None = None
    """b of baseline_absolute; null is minus ``scale``."""
    unreached: Literal["whole", "formula"] = "whole"
    """p under baseline_absolute while the mean is not above b: 1, or what the formula gives, within [0, 1]."""
    negative: Fraction = 0.0
    """What multiplies the negative weights of fixed_linear."""
    variance_n: AtLeastOne = 10.0
    """n of variance_rule=fixed."""

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


def update_weight(h: AESRL, r: float, m: float) -> float:
    """p for an individual of return r beside a mean of return m."""
    if h.mean_rule == "fixed_linear":
        p = min(max((r - m) / h.scale, -1.0), 1.0)
        return p * h.negative if p < 0 else p
    if h.mean_rule == "fixed_sigmoid":
        return 1 / (1 + math.exp(min(-(r - m) / h.scale, 700.0)))
    b = m - h.scale
    if h.mean_rule == "baseline_absolute":
        b = -h.scale if h.baseline is None else h.baseline
    if r <= b:
        return 0.0
    if m <= b and (h.unreached == "whole" or r - b == b - m):  # where the formula divides by zero
        return 1.0
    return min(max((r - b) / ((r - b) + (m - b)), 0.0), 1.0)


def variance_count(h: AESRL, p: float) -> float:
    """n for a weight p; inf leaves the variance as it is."""
    if p < LEAST_WEIGHT:
        return math.inf
    return h.variance_n if h.variance_rule == "fixed" else max(1 / p - 1, 1.0)


class Strategy(SteadyState):
    def __init__(self, hyper: AESRL, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.hyper = hyper

    def update(self, x: Coordinates, f: float, mean_fitness: float) -> Metrics:
        if not (math.isfinite(f) and math.isfinite(mean_fitness)):  # one of them failed
            return {"population/update_weight": 0.0}
        p = update_weight(self.hyper, f, mean_fitness)
        mean = (1 - p) * self.mean + p * x
        spread = (x - self.mean) * (x - mean)
        variance = self.variance + (spread - self.variance) / variance_count(self.hyper, p)
        self.mean, self.variance = mean, np.maximum(variance, self.hyper.sigma_min**2)
        return {"population/update_weight": p}
