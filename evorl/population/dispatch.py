"""How individuals travel to the members that evaluate them: whole, or by their seed alone.

By seed: what goes out for an individual is its place in a generation, what comes back is its evaluation. Every member
keeps the search's parameters itself (`evorl.ec.core.Seeded`), takes the same steps from the same fitnesses, and says
with each answer, in a few bytes, what its parameters are. They are sent once to a member that takes a lost one's place
(`Group.set_recovery_state`), and to all members of a resumed run. So a generation's bytes do not grow with their
number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evorl.cluster.core import Future, Group
from evorl.ec.core import Evaluation, Individual, Seeded, Seeding, pack
from evorl.population.evaluation import Lifetime
from evorl.population.results import Answers
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
    """Individuals travel by their places; the parameters of ``search`` are at the generation under way."""

    def __init__(self, group: Group, search: Seeding, population: int) -> None:
        self.group, self.search, self.centre, self.population = group, search, search.centre, population
        self.past: list[Fitness] = []  # of the last generations, each [N]
        self.now = np.full(population, np.nan)  # of the generation under way
        self.sent: dict[int, Task] = {}  # by the number of its first individual, those not taken back
        self.group.set_recovery_state(self.centre.state_dict)
        self._learned()

    def send(self, individuals: list[Individual]) -> Task:
        """All of one generation, whose number is that of the parameters."""
        if self.centre.generation > self.generation:
            self.past = [*self.past, self.now.copy()][-MEMORY:]
            self._learned()
        return self._send(individuals)

    def _send(self, individuals: list[Individual]) -> Task:
        past = np.array(self.past).reshape(-1, self.population)
        places, memory = [one.id % self.population for one in individuals], individuals[0].memory
        future = self.group.any("follow", self.centre.generation, past, places, memory)
        self.sent[individuals[0].id] = task = Task(individuals, future)
        return task

    def answers(self, task: Task) -> Answers:
        first = task.individuals[0].id
        while True:
            answers, hashed, _ = self.sent[first].future.result()
            if hashed == self.hash:
                del self.sent[first]
                return Answers(*answers)
            self._mend()

    def _mend(self) -> None:
        """Send the parameters, and have evaluated again what was evaluated by others, or not at all."""
        self._share()
        there = [(task.individuals, *task.future.result()) for task in self.sent.values() if task.future.done()]
        amiss = [(individuals, hashed, member) for individuals, _, hashed, member in there if hashed != self.hash]
        for member in sorted({member for _, hashed, member in amiss if hashed}):
            log.warning("member %d's parameters were not this run's: all are sent them, and play again", member)
        for individuals, _, _ in amiss:
            self._send(individuals)

    def _share(self) -> None:
        """All members are sent the parameters, behind what they have been asked so far."""
        self.group.all("load_state_dict", self.centre.state_dict())

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        for one in evaluations:
            self.now[one.individual.id % self.population] = one.objectives[0]

    def _learned(self) -> None:
        self.generation, self.hash = self.centre.generation, self.centre.hash()

    def resumed(self) -> None:
        self.past = []
        self._learned()
        self._share()
        self.tell(self.search.arrived)

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
        self.lifetime, self.member, found = make(member), member, centre()
        assert found is not None
        self.centre = found

    def follow(
        self, generation: int, past: Fitness, places: list[int], memory: StateDict | None
    ) -> tuple[Answers, str, int]:
        """Evaluate places of a generation, having learned from the fitnesses [P, N] of the P before it.

        Their individuals all know ``memory``. Returns the answers, the hash of the parameters and whose they are; ""
        and no answers where those are too far behind.
        """
        first = generation - len(past)
        if not first <= self.centre.generation <= generation:
            return Answers([]), "", self.member
        for fitness in past[self.centre.generation - first :]:
            self.centre.update(fitness)
        individuals = [self.centre.individual_at(generation, place)._replace(memory=memory) for place in places]
        return self.lifetime.evaluate(pack(individuals)), self.centre.hash(), self.member

    def load_state_dict(self, state: StateDict) -> None:
        """Take over the parameters; no `state_dict`, since the driver has its state (`Group.set_recovery_state`)."""
        self.centre.load_state_dict(state)
