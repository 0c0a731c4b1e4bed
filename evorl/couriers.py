"""How individuals travel to the members that evaluate them: whole, or by their seed alone.

By seed: what goes out for an individual is its place in a generation, what comes back is its evaluation. Every member
keeps the search's parameters itself (`evorl.ec.core.Seeded`), takes the same steps from the same fitnesses, and says
with each answer, in a few bytes, what its parameters are. Only a member that joins, or that missed too many
generations, is sent them once. So a generation's bytes do not grow with the number of parameters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evorl.cluster.core import Future, Group
from evorl.ec.core import Evaluation, Individual, Seeded, pack
from evorl.lifetime import Answer, Lifetime
from evorl.util.types import StateDict

log = logging.getLogger("evorl")
MEMORY = 8  # generations whose fitnesses go out, for members that had no part in the last ones

Fitness = NDArray[np.float64]


class Task(NamedTuple):
    """Individuals that are being evaluated."""

    individuals: list[Individual]
    future: Future


class Courier(Protocol):
    """Takes individuals to a group of lifetimes, and their answers back."""

    def send(self, individuals: list[Individual]) -> Task:
        """Have them evaluated together by whoever is free."""
        ...

    def answers(self, task: Task) -> Sequence[Sequence[Any]]:
        """What became of each (`evorl.lifetime.Answer`), in order; waits for it."""
        ...

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        """The evolver is about to be told of these."""
        ...

    def whole(self, individual: Individual) -> Individual:
        """An individual that was just evaluated, with its weights."""
        ...

    def resumed(self) -> None:
        """The evolver has been restored to the middle of its search."""
        ...


class Whole:
    """Individuals travel with their weights; ``centre`` makes those of a run whose individuals travelled by seed."""

    def __init__(self, group: Group, centre: Seeded | None, population: int) -> None:
        self.group, self.centre, self.population = group, centre, population

    def send(self, individuals: list[Individual]) -> Task:
        if self.centre is not None:
            places = [divmod(one.id, self.population) for one in individuals]
            individuals = [
                one if one.weights is not None else self.centre.individual_at(*place)
                for one, place in zip(individuals, places, strict=True)
            ]
        return Task(individuals, self.group.any("evaluate", pack(individuals)))

    def answers(self, task: Task) -> Sequence[Sequence[Any]]:
        answers: Sequence[Sequence[Any]] = task.future.result()
        return answers

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        """Nothing is kept of them."""

    def whole(self, individual: Individual) -> Individual:
        return individual

    def resumed(self) -> None:
        """Nothing was kept."""


class BySeed:
    """Individuals travel by their places; ``centre`` is the search's own, which is at the generation under way."""

    def __init__(self, group: Group, centre: Seeded, population: int) -> None:
        self.group, self.centre, self.population = group, centre, population
        self.past: list[Fitness] = []  # of the last generations, each [N]
        self.now = np.full(population, np.nan)  # of the generation under way
        self.seen = True  # all of it; not where a run is gone on with
        self.joined = 0  # times that a member was sent all parameters
        self._learned()

    def send(self, individuals: list[Individual]) -> Task:
        """All of one generation, whose number is that of the parameters."""
        if self.centre.generation > self.generation:
            self.past = [*self.past, self.now.copy()][-MEMORY:] if self.seen else []
            self.seen = True
            self._learned()
        places = [one.id % self.population for one in individuals]
        past = np.array(self.past).reshape(-1, self.population)
        return Task(individuals, self.group.any("follow", self.centre.generation, places, past))

    def answers(self, task: Task) -> Sequence[Sequence[Any]]:
        answers, hashed = task.future.result()
        if hashed == self.hash:
            return list(answers)
        if hashed:
            log.warning("a member's parameters were not this run's: it is sent them, and evaluates again")
        self.joined += 1
        places = [one.id % self.population for one in task.individuals]
        answers, _ = self.group.any("join", self.centre.state_dict(), places).result()
        return list(answers)

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        for one in evaluations:
            self.now[one.individual.id % self.population] = one.objectives[0]

    def _learned(self) -> None:
        self.generation, self.hash = self.centre.generation, self.centre.hash()

    def resumed(self) -> None:
        """Members are sent all parameters, and once more for the next generation."""
        self.seen, self.past = False, []
        self._learned()

    def whole(self, individual: Individual) -> Individual:
        return self.centre.individual_at(*divmod(individual.id, self.population))


class Follower:
    """A member: a lifetime, and the search's parameters as far as it has followed them."""

    def __init__(self, make: Callable[[int], Lifetime], centre: Callable[[], Seeded | None], member: int) -> None:
        self.lifetime, found = make(member), centre()
        assert found is not None
        self.centre = found

    def follow(self, generation: int, places: list[int], past: Fitness) -> tuple[list[Answer], str]:
        """Evaluate places of a generation, having learned from the fitnesses [P, N] of the P before it.

        Returns the answers and the hash of the parameters, "" and no answers where those are too far behind.
        """
        first = generation - len(past)
        if not first <= self.centre.generation <= generation:
            return [], ""
        for fitness in past[self.centre.generation - first :]:
            self.centre.update(fitness)
        return self._evaluated(places)

    def join(self, state: StateDict, places: list[int]) -> tuple[list[Answer], str]:
        """Take over the parameters, then evaluate places of their generation."""
        self.centre.load_state_dict(state)
        return self._evaluated(places)

    def _evaluated(self, places: list[int]) -> tuple[list[Answer], str]:
        generation = self.centre.generation
        individuals = [self.centre.individual_at(generation, place) for place in places]
        answers = self.lifetime.evaluate(pack(individuals))
        return [answer._replace(weights=None) for answer in answers], self.centre.hash()
