"""Sends individuals to the workers that evaluate them: with their weights, or as seeds alone.

As seeds: a message holds an individual's index in its generation, and the reply holds its evaluation. Every worker
keeps the parameters of the search (`evorl.ec.seeding.Seeded`), updates them from the same fitnesses, and sends a hash
of them with each reply. The parameters themselves are sent once to a worker that replaces a lost one
(`Group.set_recovery_state`), and to all workers when a run is resumed. So the bytes of a generation do not grow with
the number of parameters.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.cluster.core import Future, Group
from evorl.ec.core import Evaluation, Individual, pack
from evorl.ec.seeding import Seeded, Seeding
from evorl.population.evaluation_plan import Evaluator
from evorl.population.results import TaskResult
from evorl.util.types import StateDict

log = logging.getLogger("evorl")
MEMORY = 8  # generations whose fitnesses are sent, for workers that took no part in the last ones

Fitness = NDArray[np.float64]


class Task(NamedTuple):
    """Individuals under evaluation, and the future of their results."""

    individuals: list[Individual]
    future: Future


class Dispatcher(ABC):
    """Sends individuals to a group of evaluators and receives their results."""

    @abstractmethod
    def send(self, individuals: list[Individual]) -> Task:
        """Send individuals to the next free worker, which evaluates them together."""

    @abstractmethod
    def answers(self, task: Task) -> TaskResult:
        """Wait for the results of a task and return them."""

    def whole(self, individual: Individual) -> Individual:
        """Return an individual that was just evaluated, with its weights."""
        return individual

    def tell(self, evaluations: Sequence[Evaluation]) -> None:  # noqa: B027 (for workers that follow the search)
        """Note the evaluations that the evolver receives next."""

    def resumed(self) -> None:  # noqa: B027 (likewise)
        """Continue after the evolver was restored from a checkpoint."""


class WeightDispatcher(Dispatcher):
    """Sends individuals with their weights; ``centre`` rebuilds the weights of individuals saved as seeds."""

    def __init__(
        self,
        group: Group,
        centre: Seeded | None,
        population: int,
        sent: Callable[[Individual], Individual] = lambda individual: individual,
    ) -> None:
        """``sent`` adds to an individual what its evaluation needs and no checkpoint holds twice."""
        self.group, self.centre, self.population, self.sent = group, centre, population, sent

    def send(self, individuals: list[Individual]) -> Task:
        if self.centre is not None:
            individuals = [with_weights(self.centre, individual, self.population) for individual in individuals]
        return Task(
            individuals, self.group.any("evaluate", pack([self.sent(individual) for individual in individuals]))
        )

    def answers(self, task: Task) -> TaskResult:
        return TaskResult(*task.future.result())


class SeedDispatcher(Dispatcher):
    """Sends individuals as indices; the parameters of ``search`` are those of the present generation."""

    def __init__(self, group: Group, search: Seeding, population: int) -> None:
        self.group, self.search, self.centre, self.population = group, search, search.centre, population
        self.past: list[Fitness] = []  # fitnesses of the last generations, each [N]
        self.fitness = np.full(population, np.nan)  # fitnesses of the present generation
        self.sent: dict[int, Task] = {}  # by the id of their first individual; results not yet received
        self.group.set_recovery_state(self.centre.state_dict)
        self._learned()

    def send(self, individuals: list[Individual]) -> Task:
        """Send individuals of one generation, the generation of the parameters."""
        if self.centre.generation > self.generation:
            self.past = [*self.past, self.fitness.copy()][-MEMORY:]
            self._learned()
        return self._send(individuals)

    def _send(self, individuals: list[Individual]) -> Task:
        past = np.array(self.past).reshape(-1, self.population)
        places, memory = [individual.id % self.population for individual in individuals], individuals[0].memory
        future = self.group.any("follow", self.centre.generation, past, places, memory)
        self.sent[individuals[0].id] = task = Task(individuals, future)
        return task

    def answers(self, task: Task) -> TaskResult:
        first = task.individuals[0].id
        while True:
            answers, hashed, _ = self.sent[first].future.result()
            if hashed == self.hash:
                del self.sent[first]
                return TaskResult(*answers)
            self._resend_parameters()

    def _resend_parameters(self) -> None:
        """Send the parameters to all workers; repeat the tasks evaluated with other parameters or not at all."""
        self._send_parameters()
        answers = [(task.individuals, *task.future.result()) for task in self.sent.values() if task.future.done()]
        amiss = [(individuals, hashed, member) for individuals, _, hashed, member in answers if hashed != self.hash]
        for member in sorted({member for _, hashed, member in amiss if hashed}):
            log.warning(
                "member %d had other parameters than this run: sending them to all members and repeating their tasks",
                member,
            )
        for individuals, _, _ in amiss:
            self._send(individuals)

    def _send_parameters(self) -> None:
        """Send the parameters to all members, after the calls that are already queued."""
        self.group.all("load_state_dict", self.centre.state_dict())

    def tell(self, evaluations: Sequence[Evaluation]) -> None:
        for evaluation in evaluations:
            self.fitness[evaluation.individual.id % self.population] = evaluation.objectives[0]

    def _learned(self) -> None:
        self.generation, self.hash = self.centre.generation, self.centre.hash()

    def resumed(self) -> None:
        self.past = []
        self._learned()
        self._send_parameters()
        self.tell(self.search.arrived)

    def whole(self, individual: Individual) -> Individual:
        return with_weights(self.centre, individual, self.population)


def with_weights(centre: Seeded, individual: Individual, population: int) -> Individual:
    """Return an individual with weights; they are rebuilt from its index if it was sent without."""
    if individual.weights is not None:
        return individual
    return individual._replace(weights=centre.individual_at(*divmod(individual.id, population)).weights)


class SeedFollower:
    """A worker's evaluator together with its own copy of the search's parameters."""

    def __init__(self, make: Callable[[int], Evaluator], centre: Callable[[], Seeded | None], member: int) -> None:
        self.evaluator, self.member, start = make(member), member, centre()
        assert start is not None
        self.centre = start

    def follow(
        self, generation: int, past: Fitness, places: list[int], memory: StateDict | None
    ) -> tuple[TaskResult, str, int]:
        """Update the parameters with the fitnesses [P, N] of the last P generations, then evaluate individuals.

        ``places`` are indices in ``generation``; the individuals share ``memory``. Returns the results, the hash of the
        parameters and the member's index. The hash is "" and the results are empty if more than P generations are
        missing.
        """
        first = generation - len(past)
        if not first <= self.centre.generation <= generation:
            return TaskResult([]), "", self.member
        for fitness in past[self.centre.generation - first :]:
            self.centre.update(fitness)
        individuals = [self.centre.individual_at(generation, place)._replace(memory=memory) for place in places]
        return self.evaluator.evaluate(pack(individuals)), self.centre.hash(), self.member

    def load_state_dict(self, state: StateDict) -> None:
        """Load the parameters. It has no `state_dict`: the driver holds the state (`Group.set_recovery_state`)."""
        self.centre.load_state_dict(state)

    def close(self) -> None:
        self.evaluator.close()
