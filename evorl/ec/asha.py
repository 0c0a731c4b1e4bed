"""Asynchronous successive halving (Li et al. 2020, "A system for massively parallel hyperparameter tuning",
arXiv 1810.05934, algorithm 2).

Rung k holds the configurations that had r eta^(s+k) units of resource. A free worker promotes a configuration that is
among the best 1/eta of its rung and was not promoted before, from the highest rung that has one. If no rung has one, it
draws a new configuration. So no worker waits for a rung to fill. With ``asynchronous=false`` it decides for
``population`` workers at a time, on the same results.

A failed configuration counts in its rung, with an infinite loss. Of equal configurations the older one is better.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

import numpy as np

from evorl.ec.core import Evaluation, Individual, Metrics
from evorl.ec.early_stopping import EarlyStopping, Promoting, part, top
from evorl.ec.space import Space
from evorl.ec.vectors import fitness
from evorl.util.errors import BadRequest
from evorl.util.types import Natural, StateDict


@dataclass(frozen=True, kw_only=True)
class ASHA(EarlyStopping):
    """The paper's eta and s; R is 64 units."""

    asynchronous: bool = True
    s: Natural = 0
    """Minimum early-stopping rate: a configuration first gets r eta^s units."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.s > self.rungs:
            raise BadRequest(f"r eta^s is more than R={self.R} units; s is {self.rungs} at most", "s")

    def notice(self, slots: int) -> str:
        """Rungs are fixed by r and eta: the last one ends before R, unless that is a power away."""
        last = self.r * self.eta**self.rungs
        if last == self.R:
            return ""
        times = f"r={self.r} times " if self.r > 1 else ""
        return (
            f"no configuration trains to the end: the last rung has {last} of R={self.R} units; "
            f"R={last * self.eta} is {times}a power of eta={self.eta}"
        )

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(Promoting):
    """Its population is who may be promoted: everyone who did not fail and was not promoted yet."""

    hyper: ASHA

    def __init__(self, hyper: ASHA, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.parts = [f"{hyper.r * hyper.eta ** (hyper.s + k)}/{hyper.R}" for k in range(hyper.rungs - hyper.s + 1)]
        self.rungs: list[list[tuple[float, int]]] = [[] for _ in self.parts]  # -fitness and id, in order, of all there
        self.settled: set[int] = set()  # ids of those that were promoted, or failed

    @property
    def brood(self) -> int:
        return 1 if self.hyper.asynchronous else self.hyper.population

    @property
    def batch(self) -> int:
        return 1

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        return [self.get_job(generator) for _ in range(self.brood)]

    def get_job(self, generator: np.random.Generator) -> Individual:
        """Algorithm 2, function get_job."""
        for k in reversed(range(len(self.rungs) - 1)):
            if (number := self.promotable(k)) is not None:
                best = next(evaluation for evaluation in self.population if evaluation.individual.id == number)
                self.population = [other for other in self.population if other is not best]
                self.settled.add(number)
                return self.promoted(best, self.parts[k + 1])
        return self.drawn(generator, self.parts[0])

    def promotable(self, k: int) -> int | None:
        """The best one among the best 1 / eta of rung k that was not promoted; None if all were."""
        candidates = self.rungs[k][: len(self.rungs[k]) // self.hyper.eta]
        return next((number for _, number in candidates if number not in self.settled), None)

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        for evaluation, f in zip(evaluations, fitness(evaluations).tolist(), strict=True):
            insort(self.rungs[self.parts.index(part(evaluation.individual))], (-f, evaluation.individual.id))
        waiting = top(evaluations, len(evaluations))
        self.settled |= {one.individual.id for one in evaluations} - {one.individual.id for one in waiting}
        self.population = [*self.population, *waiting]
        return {}

    def state_dict(self) -> StateDict:
        rungs = {
            str(k): {"ids": [number for _, number in rung], "fitness": np.array([-worth for worth, _ in rung])}
            for k, rung in enumerate(self.rungs)
        }
        return {**super().state_dict(), "rungs": rungs}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        rungs = [state["rungs"][str(k)] for k in range(len(self.parts))]
        self.rungs = [sorted(zip((-np.asarray(rung["fitness"])).tolist(), rung["ids"], strict=True)) for rung in rungs]
        waiting = {evaluation.individual.id for evaluation in self.population}
        self.settled = {number for rung in self.rungs for _, number in rung} - waiting
