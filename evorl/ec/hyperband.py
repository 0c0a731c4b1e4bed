"""Hyperband (Li et al. 2018, JMLR 18(185), arXiv 1603.06560, algorithm 1): brackets of successive halving.

Bracket s draws n configurations, and gives each R eta^-s units of resource. The best 1/eta of them go on with eta times
as much, and so on up to R. Bracket s_max stops nearly all configurations early; bracket 0 stops none, as random search.
After bracket 0 the next bracket is s_max again. Within a bracket a rung waits for all of its configurations.

A failed configuration is not promoted. Of equal configurations the older one is better. With r > 1 no configuration
gets less than r units, as with s_max = floor(log_eta(R / r)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from evorl.ec.core import Evaluation, Individual, Metrics
from evorl.ec.early_stopping import EarlyStopping, Eta, Promoting, top
from evorl.ec.space import Space
from evorl.util.errors import BadRequest
from evorl.util.saved import restore, saved
from evorl.util.types import Count, StateDict


@dataclass(frozen=True, kw_only=True)
class Hyperband(EarlyStopping):
    """The paper's example: eta is 3, and R 81 units."""

    eta: Eta = 3
    R: Count = 81

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.asynchronous:
            raise BadRequest("a rung waits for all of its configurations; take ec=asha", "asynchronous")

    def notice(self, slots: int) -> str:
        """No two rungs train at once, and the first one has the most configurations."""
        most = self.size(self.rungs)
        if slots <= most:
            return ""
        return f"at most {most} configurations train at once, those of a rung, and not {slots}; asha waits for no rung"

    def size(self, s: int) -> int:
        """n = ceil(B / R * eta^s / (s + 1)): configurations of bracket s, where B = (s_max + 1) R."""
        return ceil((self.rungs + 1) * int(self.eta**s) / (s + 1))

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(Promoting):
    """Its population is the newest rung, without those that failed."""

    hyper: Hyperband

    def __init__(self, hyper: Hyperband, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.s = hyper.rungs  # the bracket
        self.i = 0  # the rung of the bracket that is proposed next

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        h, part = self.hyper, f"1/{self.hyper.eta ** (self.s - self.i)}"  # r_i = R eta^-s eta^i
        if self.i == 0:
            return [self.drawn(generator, part) for _ in range(h.size(self.s))]
        return [self.promoted(survivor, part) for survivor in self.survivors(self.population)]

    def survivors(self, rung: Sequence[Evaluation]) -> list[Evaluation]:
        """top_k(T, L, floor(n_i / eta)), where n_i = floor(n eta^-i) is the size of the rung before it."""
        return top(rung, self.hyper.size(self.s) // self.hyper.eta ** (self.i - 1) // self.hyper.eta)

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        self.population, self.i = top(evaluations, len(evaluations)), self.i + 1
        if self.i > self.s or not self.survivors(self.population):
            self.s, self.i = (self.s - 1 if self.s else self.hyper.rungs), 0
        return {}

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), **saved(self, ("s", "i"))}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        restore(self, ("s", "i"), state)
