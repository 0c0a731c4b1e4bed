"""How individuals travel to the members that evaluate them: whole, or by their seed alone.

By seed: what goes out for an individual is its place in a generation, what comes back is its evaluation. Every member
keeps the search's parameters itself (`evorl.ec.core.Seeded`), takes the same steps from the same fitnesses, and says
with each answer, in a few bytes, what its parameters are. Only a member that joins, or that missed too many
generations, is sent them once. So a generation's bytes do not grow with the number of parameters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evorl.answers import Answers
from evorl.cluster.core import Future, Group
from evorl.ec.core import Evaluation, Individual, Seeded, pack
from evorl.lifetime import Lifetime
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

    def answers(self, task: Task) -> Answers:
        """What became of them; waits for it."""
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
            individuals = [rebuilt(self.centre, one, self.population) for one in individuals]
        return Task(individuals, self.group.any("evaluate", pack(individuals)))

    def answers(self, task: Task) -> Answers:
        return Answers(*task.future.result())

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
        places = self._places(individuals)
        if not self.seen and not self.generation:  # members are there as well, but may have begun elsewhere
            self.joined += 1
            return Task(individuals, self.group.any("join", self.centre.state_dict(), *places))
        past = np.array(self.past).reshape(-1, self.population)
        return Task(individuals, self.group.any("follow", self.centre.generation, past, *places))

    def _places(self, individuals: list[Individual]) -> tuple[list[int], StateDict | None]:
        """Their places, and what all of them know."""
        return [one.id % self.population for one in individuals], individuals[0].memory

    def answers(self, task: Task) -> Answers:
        answers, hashed = task.future.result()
        if hashed == self.hash:
            return Answers(*answers)
        if hashed:
            log.warning("a member's parameters were not this run's: it is sent them, and evaluates again")
        self.joined += 1
        answers, _ = self.group.any("join", self.centre.state_dict(), *self._places(task.individuals)).result()
        return Answers(*answers)

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
        return rebuilt(self.centre, individual, self.population)


def rebuilt(centre: Seeded, one: Individual, population: int) -> Individual:
    """An individual with the weights that its place says it has, where it travelled without."""
    if one.weights is not None:
        return one
    return one._replace(weights=centre.individual_at(*divmod(one.id, population)).weights)


class Follower:
    """A member: a lifetime, and the search's parameters as far as it has followed them."""

    def __init__(self, make: Callable[[int], Lifetime], centre: Callable[[], Seeded | None], member: int) -> None:
        self.lifetime, found = make(member), centre()
        assert found is not None
        self.centre = found

    def follow(
        self, generation: int, past: Fitness, places: list[int], memory: StateDict | None
    ) -> tuple[Answers, str]:
        """Evaluate places of a generation, having learned from the fitnesses [P, N] of the P before it.

        Their individuals all know ``memory``. Returns the answers and the hash of the parameters, "" and no answers
        where those are too far behind.
        """
        first = generation - len(past)
        if not first <= self.centre.generation <= generation:
            return Answers([]), ""
        for fitness in past[self.centre.generation - first :]:
            self.centre.update(fitness)
        return self._evaluated(places, memory)

    def join(self, state: StateDict, places: list[int], memory: StateDict | None) -> tuple[Answers, str]:
        """Take over the parameters, then evaluate places of their generation."""
        self.centre.load_state_dict(state)
        return self._evaluated(places, memory)

    def _evaluated(self, places: list[int], memory: StateDict | None) -> tuple[Answers, str]:
        generation = self.centre.generation
        individuals = [self.centre.individual_at(generation, place)._replace(memory=memory) for place in places]
        return self.lifetime.evaluate(pack(individuals)), self.centre.hash()
