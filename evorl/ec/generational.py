"""Evolvers that propose and learn by generations: the barrier, the queue and what a checkpoint holds of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from evorl.ec.core import (
    Evaluation,
    Evolution,
    Individual,
    Metrics,
    check_due,
    pack,
    pack_evaluations,
    unpack,
    unpack_evaluations,
)
from evorl.ec.space import Space
from evorl.ec.space_change import SpaceChange
from evorl.util import seed as seeds
from evorl.util.saved import restore, saved
from evorl.util.types import StateDict

SAVED = ("generation", "proposed", "told", "next_id")  # what a checkpoint holds as it is


class Generational(ABC):
    """An evolver that proposes a generation, waits for all of it, and learns from it in the order it was asked.

    With ``asynchronous`` it does not wait. After the first population it proposes one individual at a time from the
    current population, and learns whenever a generation's number of evaluations has arrived.
    """

    def __init__(self, hyper: Evolution, space: Space, seed: int) -> None:
        self.hyper, self.space, self.seed = hyper, space, seed
        self.population: Sequence[Evaluation] = []
        self.generation = 0  # generations learned from
        self.proposed = 0  # broods proposed
        self.told = 0  # evaluations received
        self.next_id = 0
        self._queue: list[Individual] = []  # proposed, not yet asked for
        self._out: set[int] = set()  # ids in flight: from `ask` to `tell`
        self._arrived: list[Evaluation] = []

    @abstractmethod
    def propose(self, generator: np.random.Generator) -> list[Individual]:
        """The next `brood` (of `self.new` individuals)."""

    @abstractmethod
    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        """Learn from a generation's evaluations and update `population`."""

    def new(self, **fields: Any) -> Individual:
        """An individual with a new id."""
        self.next_id += 1
        return Individual(self.next_id - 1, birth=self.told, **fields)

    @property
    def arrived(self) -> Sequence[Evaluation]:
        """The evaluations of the current generation that have arrived."""
        return self._arrived

    @property
    def due(self) -> Set[int]:
        return self._out

    def ask(self, limit: int | None = None) -> list[Individual]:
        return self.take(limit, self.propose)

    def take(self, limit: int | None, propose: Callable[[np.random.Generator], list[Individual]]) -> list[Individual]:
        """At most ``limit`` individuals of the queue, which ``propose`` fills where it is empty."""
        proposals: list[Individual] = []
        while limit is None or len(proposals) < limit:
            if not self._queue and not self._may_propose(limit is None and bool(proposals)):
                break
            if not self._queue:
                self._queue = propose(seeds.generator(self.seed, "propose", self.proposed))
                self.proposed += 1
            take = len(self._queue) if limit is None else limit - len(proposals)
            proposals += self._queue[:take]
            self._queue = self._queue[take:]
            self._out.update(individual.id for individual in proposals)
        return proposals

    def _may_propose(self, some: bool) -> bool:
        """Whether another brood may be proposed now; one ask never starts two."""
        if self.hyper.asynchronous:
            return not some
        return not some and not self._out and not self._arrived

    def tell(self, evaluations: Sequence[Evaluation]) -> Metrics:
        check_due(evaluations, self.due)
        self._out -= {evaluation.individual.id for evaluation in evaluations}
        self._arrived += evaluations
        self.told += len(evaluations)
        metrics: Metrics = {}
        while self._complete():
            size = self._size()
            generation, self._arrived = (
                sorted(self._arrived[:size], key=lambda evaluation: evaluation.individual.id),
                self._arrived[size:],
            )
            metrics = self.learn(generation, seeds.generator(self.seed, "learn", self.generation))
            self.generation += 1
        return metrics

    @property
    def brood(self) -> int:
        """Individuals to propose at once: a generation, or one in an asynchronous search."""
        return 1 if self.hyper.asynchronous and self.next_id >= self.hyper.population else self.hyper.population

    @property
    def batch(self) -> int:
        """Evaluations to learn from at once in an asynchronous search."""
        return self.hyper.population

    def _size(self) -> int:
        return self.batch if self.hyper.asynchronous else len(self._arrived)

    def _complete(self) -> bool:
        if self.hyper.asynchronous:
            return len(self._arrived) >= self.batch
        return bool(self._arrived) and not self._queue and not self._out

    def state_dict(self) -> StateDict:
        return {
            **saved(self, SAVED),
            "population": pack_evaluations(self.population),
            "queue": pack(self._queue),
            "out": sorted(self._out),
            "arrived": pack_evaluations(self._arrived),
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        restore(self, SAVED, state)
        self.population = unpack_evaluations(state["population"])
        self._queue = unpack(state["queue"])
        self._out = set(state["out"])
        self._arrived = unpack_evaluations(state["arrived"])

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        people = {name: move.evaluations(state[name]) for name in ("population", "arrived")}
        return {**state, **people, "queue": move.individuals(state["queue"])}


def without_pending_generation(state: StateDict) -> StateDict:
    """The state of a `Generational` without the current generation, which it then proposes again.

    For searches whose individuals are samples of a distribution. If all samples had the same value of a new gene, the
    search would learn that the gene has no variance.
    """
    return {**state, "queue": pack([]), "out": [], "arrived": pack_evaluations([])}
