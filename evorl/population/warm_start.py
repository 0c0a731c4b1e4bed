"""Starts a population from the policies and genes of another run (``init=RUN_DIR``).

A single run gives its policy. A population gives its best individual, and its other individuals if both populations
have the same kind of evaluation and the same network. Individual k of the first generation begins as the k-th best.
Individuals beyond the last one begin with the best policy and with genes of their own. A search with a centre begins at
the best individual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Individual, failed, objectives, unpack_evaluations
from evorl.ec.space import Space, Value
from evorl.ops.pareto import best
from evorl.population.evaluation_plan import EvaluationPlan
from evorl.population.journal import IndividualEntry, read_journal
from evorl.rl.core import inherited, optimizers
from evorl.training.train import Start
from evorl.util.errors import BadRequest, wrong_data
from evorl.util.types import StateDict


class InitialState(NamedTuple):
    """What an individual begins with."""

    weights: NDArray[np.float32] | None  # [D]
    memory: StateDict | None
    values: Mapping[str, Value]  # of genes, by name


class WarmStart:
    """Holds the initial states of a population; empty if the population starts from no other run."""

    def __init__(self, initial: Sequence[InitialState] = ()) -> None:
        """``initial``: the best first; individuals beyond the last one take the best one's policy."""
        self.initial = list(initial)

    def within(self, space: Space) -> Space:
        """Return the space with these initial weights and genes."""
        return replace(space, fresh=partial(self._weights, space), initial_values=self._values, taken_over=self._has)

    def memory(self, individual: Individual) -> StateDict | None:
        """Return a proposed individual's memory: its own, or the one it begins with."""
        if individual.memory is not None or not self.initial:
            return individual.memory
        if not individual.role.startswith("initial"):
            return self.initial[0].memory
        own = self._at(individual.id)  # but who begins late, or again, has another number than its weights
        return next((state for state in (own, *self.initial) if _equal(state.weights, individual.weights)), own).memory

    @property
    def known(self) -> StateDict | None:
        """The memory of the best initial state."""
        return self.initial[0].memory if self.initial else None

    def release(self) -> None:
        """Drop all initial states but the best, once the first generation has begun."""
        del self.initial[1:]

    def _at(self, number: int) -> InitialState:
        return self.initial[number if number < len(self.initial) else 0]

    def _has(self, number: int) -> bool:
        return number < len(self.initial)

    def _weights(self, space: Space, number: int) -> NDArray[np.float32]:
        weights = self._at(number).weights if self.initial else space.weights_of(number)
        assert weights is not None
        return weights

    def _values(self, number: int) -> Mapping[str, Value]:
        """Return no genes beyond the initial states: otherwise later random individuals would all be equal."""
        return self.initial[number].values if number < len(self.initial) else {}

    def state_dict(self) -> StateDict:
        return {str(n): {**state._asdict(), "values": dict(state.values)} for n, state in enumerate(self.initial)}

    def load_state_dict(self, state: StateDict) -> None:
        self.initial = [InitialState(**state[str(n)]) for n in range(len(state))]


def initial_states(init: Start, plan: EvaluationPlan, most: int, halves: bool = False) -> list[InitialState]:
    """Return at most ``most`` initial states of a run, the best first. Raises `BadRequest` if they do not fit.

    ``halves``: the population is of two sides, as in `evorl.ec.coevolution`, and each half takes those of its side.
    """
    with wrong_data(lambda why: BadRequest(f"{init.directory} cannot be read: {why}", "init")):
        return _initial_states(init, plan, most, halves)


def _initial_states(init: Start, plan: EvaluationPlan, most: int, halves: bool) -> list[InitialState]:
    run = init.past
    people = saved_individuals(run)
    lines = _lines(people, init.directory) if people else {}
    genes = {number: line.genes for number, line in lines.items()}
    if plan.begin is None:
        if init.optimizer:
            raise BadRequest("a problem has no optimiser", "init_optimizer")
        return [InitialState(None, None, genes[point.id]) for point in _points(people, plan, init)[:most]]
    if run["learner"] is None:
        raise BadRequest(f"{init.directory} holds no policy", "init")
    try:
        weights, memory = plan.begin(run["learner"])
    except (KeyError, ValueError) as error:
        raise BadRequest(f"the policy of {init.directory} does not fit: {error}", "init") from error
    if init.optimizer and "learner" not in (memory or {}):
        raise BadRequest("individuals that only play have no optimiser", "init_optimizer")
    if init.optimizer and people and "optimizer" not in (people[0].memory or {}).get("learner", {}):
        raise BadRequest(f"the individuals of {init.directory} hand on no optimiser's state", "init_optimizer")
    states = [InitialState(weights, _taken_over(memory, init.optimizer), genes[people[0].id] if people else {})]
    others: list[Individual] = []
    if people and np.array_equal(weights, _weights(people[0])):  # both populations lay out their weights alike
        # weights are None if individuals were sent as seeds
        others = [individual for individual in people[1:] if individual.weights is not None]
        states += [
            InitialState(_weights(other), _taken_over(other.memory, init.optimizer), genes[other.id])
            for other in others
        ]
    if halves:
        sides = [lines[one.id].side for one in (*people[:1], *others)]
        return _by_side(states, sides, most // 2)
    return states[:most]


def _by_side(states: list[InitialState], sides: Sequence[int | None], size: int) -> list[InitialState]:
    """The states of side 0, then those of side 1, ``size`` of each; where a side has fewer, its best policy again.

    Of a run whose individuals have no sides the best first.
    """
    halves = [[state for state, own in zip(states, sides, strict=True) if own == side] for side in (0, 1)]
    if not all(halves):
        return states[: 2 * size]
    best = [half[0]._replace(values={}) for half in halves]
    return [half[k] if k < len(half) else first for half, first in zip(halves, best, strict=True) for k in range(size)]


def saved_individuals(run: StateDict) -> list[Individual]:
    """Return the individuals of a population's state that did not fail, the best first; none for other runs."""
    if "leader" not in run:  # one learner, or a mean with a shared critic
        return []
    evolver = run["evolver"]
    others = unpack_evaluations(evolver["population"] if "population" in evolver else evolver["policies"])  # psro's
    f = objectives(others)
    lost = failed(f) if others else ()
    order = [others[i] for i in best(f, len(others)) if not lost[i]] if others else []
    individuals = {
        evaluation.individual.id: evaluation.individual for evaluation in [*unpack_evaluations(run["leader"]), *order]
    }
    return list(individuals.values())


def _lines(people: list[Individual], directory: Path) -> dict[int, IndividualEntry]:
    """Return the line of each individual by id, from the journal. Raises `BadRequest` for a missing one."""
    lines = {line.id: line for line in read_journal(directory, IndividualEntry, "init")}
    for lost in [person.id for person in people if person.id not in lines]:
        raise BadRequest(f"{directory / 'population.jsonl'} has no line of individual {lost}", "init")
    return lines


def _points(people: list[Individual], plan: EvaluationPlan, init: Start) -> list[Individual]:
    """Return the individuals of a problem with as many numbers. Raises `BadRequest` for any other run."""
    if not people or len(people[0].genes) != len(plan.space.genes) or people[0].weights is not None:
        count = len(plan.space.genes)
        raise BadRequest(f"{init.directory} is no evolution of a problem of {count} numbers", "init")
    return people


def _equal(a: NDArray[np.float32] | None, b: NDArray[np.float32] | None) -> bool:
    return a is not None and b is not None and np.array_equal(a, b)


def _weights(individual: Individual) -> NDArray[np.float32]:
    return np.asarray(individual.weights, np.float32)


def _taken_over(memory: StateDict | None, optimizer: bool) -> StateDict | None:
    """Return the part of a memory that another run takes; its schedules begin at step 0."""
    if memory is None or "learner" not in memory:
        # a cap on episode lengths is not taken
        return {"moments": memory["moments"]} if memory and "moments" in memory else None
    learner = memory["learner"]
    return {"steps": 0, "learner": inherited(learner) | (optimizers(learner) if optimizer else {})}
