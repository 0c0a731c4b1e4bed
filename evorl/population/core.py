"""What the loops of a population share: requests in flight, counters, failures, the journal of a replay, checkpoints.

In `evorl.population.loop` individuals are evaluated independently of each other, in `evorl.population.critic_loop` they
share a critic.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, Generic, TypeVar

from evorl.cluster.core import Group, stoppable
from evorl.ec.core import Evaluation, Evolution, Evolver
from evorl.ec.space import Space
from evorl.mdp.core import WorldError
from evorl.population.critic_jobs import Job
from evorl.population.dispatch import Task
from evorl.population.journal import Entry, Journal
from evorl.population.log_rows import top_rows
from evorl.population.old_states import in_present_form
from evorl.rl.core import Metrics
from evorl.training.core import Progress
from evorl.training.experiment import Experiment
from evorl.util.saved import restore, saved
from evorl.util.types import StateDict

log = logging.getLogger("evorl")

HOPELESS = 1000
"""Failed evaluations in a row after which a run ends. Evaluations that fail at once would never use up the budget."""


Request = TypeVar("Request", Task, Job)
"""What was sent to a worker."""


class PopulationLoop(ABC, Generic[Request]):
    """An evolver, its requests in flight and the counters."""

    counters: ClassVar[tuple[str, ...]] = ("steps", "evaluations", "failed", "failures_in_a_row")
    """Names of the counters, which a checkpoint holds."""

    evolution: Evolution
    evolver: Evolver
    space: Space
    objective_names: Sequence[str]
    group: Group

    def __init__(self, experiment: Experiment, evolution: Evolution, order: Sequence[Entry]) -> None:
        """``order``: the journal of a run to repeat."""
        self.experiment, self.evolution = experiment, evolution
        self.steps = self.evaluations = self.failed = 0
        self.failures_in_a_row = 0  # failed evaluations since the last successful one
        self.best: tuple[float, int] | None = None  # the highest fitness so far, and its step
        self.journal = Journal(order)
        self.in_flight: list[Request] = []
        self.whole = True
        self._open = ExitStack()  # what `close` closes
        self._open.callback(experiment.mdp.close)

    def close(self) -> None:
        self._open.close()

    # -------------------------------------------------------------- the loop

    def iterate(self) -> Progress:
        """Take one answer and tell the evolver."""
        self.fill_slots()
        if not self.in_flight:
            raise RuntimeError("the evolver waits for evaluations, and none is in flight")
        with stoppable():  # requests in flight are in the checkpoint, and are sent again
            request = self._next()
            answer = self._answer(request)
        self.whole = False
        self.in_flight.remove(request)
        progress = self._finish(request, answer)
        self.journal.add(progress.jobs or progress.evaluated)
        self.whole = True
        return progress

    @abstractmethod
    def fill_slots(self) -> None:
        """Ask and send until all slots are in use or the evolver waits for evaluations."""

    def _next(self) -> Request:
        """Return the request whose answer is taken next: by the journal, in a fixed order, or the first to arrive."""
        request = self.journal.next_of(self.in_flight) or self._next_in_order()
        if request is not None:
            return request
        ready = self.group.first([request.future for request in self.in_flight])
        return next(request for request in self.in_flight if request.future is ready)

    @abstractmethod
    def _next_in_order(self) -> Request | None:
        """Return the request whose answer must come next; None if answers are taken in the order of arrival."""

    def _answer(self, request: Request) -> Any:
        """Wait for the answer to a request."""
        return request.future.result()

    @abstractmethod
    def _finish(self, request: Request, answer: Any) -> Progress:
        """Learn from an answer."""

    @property
    def due(self) -> bool:
        """Whether a replay still has lines to repeat that add no environment step."""
        entry = self.journal.next
        return entry is not None and entry.step <= self.steps

    @property
    def ended(self) -> bool:
        """Whether a replay has no line left."""
        return self.journal.ended(self.experiment.budget.steps)

    # -------------------------------------------------------------- what is counted

    def _count_failures(self, evaluated: Sequence[tuple[Evaluation, str]]) -> None:
        """Count the evaluations that failed; each has a reason, else "". Raises `WorldError` if there is no hope."""
        failed = [(evaluation.individual.id, reason) for evaluation, reason in evaluated if reason]
        for number, reason in failed:
            log.warning("individual %d failed and has no fitness: %s", number, reason)
        self.failed += len(failed)
        self.failures_in_a_row = self.failures_in_a_row + len(failed) if len(failed) == len(evaluated) else 0
        if failed and not self.any_fitness and self.failures_in_a_row >= self.evolution.population:
            raise WorldError(f"every individual so far failed; the last one: {failed[-1][1]}")
        if self.failures_in_a_row >= max(HOPELESS, self.evolution.population):
            raise WorldError(f"the last {self.failures_in_a_row} individuals all failed; the last one: {failed[-1][1]}")

    @property
    @abstractmethod
    def any_fitness(self) -> bool:
        """Whether any individual so far has a fitness."""

    def _note_fitness(self, fitness: float) -> None:
        if self.best is None or fitness > self.best[0]:
            self.best = (fitness, self.steps)

    def _counts(self) -> Metrics:
        return {
            "population/evaluations": self.evaluations, "population/failed": self.failed,
            "population/generation": self.evolver.generation, **self.group.counters(),
        }  # fmt: skip

    @property
    def births(self) -> int:
        """What an individual's ``birth`` counts, at present."""
        return self.evaluations

    def top_individuals(self) -> list[dict[str, Any]]:
        """Return the best individuals of the present population as table rows."""
        return top_rows(self.evolver.population, self.space, self.objective_names, self.births)

    def opponents(self) -> list[dict[str, Any]]:
        return []

    # -------------------------------------------------------------- checkpoints

    def state_dict(self) -> StateDict:
        return {
            **saved(self, self.counters),
            "journal_lines": self.journal.lines,
            "best": None if self.best is None else list(self.best),
            "evolver": self.evolver.state_dict(),
            "in_flight": {str(n): self._packed(request) for n, request in enumerate(self.in_flight)},
        }

    def load_state_dict(self, state: StateDict) -> None:
        state = in_present_form(state)
        restore(self, self.counters, state)
        self.journal.lines = state["journal_lines"]
        self.best = None if state["best"] is None else (state["best"][0], state["best"][1])
        self.evolver.load_state_dict(state["evolver"])
        self._load_rest(state)
        packed = state["in_flight"]
        self.in_flight = [self._sent_again(packed[str(n)]) for n in range(len(packed))]

    @abstractmethod
    def _load_rest(self, state: StateDict) -> None:
        """Load what a loop adds to the state."""

    @abstractmethod
    def _packed(self, request: Request) -> StateDict:
        """What a checkpoint holds of a request in flight."""

    @abstractmethod
    def _sent_again(self, packed: StateDict) -> Request:
        """Send a request that a checkpoint holds."""
