"""What a population starts from where it starts from another run: that run's policies and genes, not random ones.

A single run gives its policy. A population gives its best individual, and all others too where they are of the same
kind: what an evaluation is, and the network. Individual k of the first generation begins as the k-th best; those
beyond have the best's policy and genes of their own. A search that keeps a centre begins around the best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Individual, failed, objectives, unpack_evaluations
from evorl.ec.space import Space, Value
from evorl.ops.pareto import best
from evorl.population.evaluation import Plan
from evorl.training.train import Start
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict

INHERITED = ("moments", "optimizer")
"""What is taken of a learner's state beside its policy; the optimiser's on request."""


class Beginning(NamedTuple):
    """What an individual begins with."""

    weights: NDArray[np.float32] | None  # [D]
    memory: StateDict | None
    values: Mapping[str, Value]  # of genes, by name


class Origin:
    """Gives those who begin what they begin with; it gives nothing where a population starts from no other run."""

    def __init__(self, beginnings: Sequence[Beginning] = ()) -> None:
        """``beginnings``: the best first, whose policy those of numbers beyond them have again."""
        self.beginnings = list(beginnings)

    def within(self, space: Space) -> Space:
        """The space whose individuals begin so."""
        return replace(space, fresh=partial(self._weights, space), given=self._values)

    def memory(self, one: Individual) -> StateDict | None:
        """Of an individual as it is proposed: what it has, or what it begins with."""
        if one.memory is not None or not self.beginnings:
            return one.memory
        return self._at(one.id if one.role == "initial" else 0).memory

    @property
    def known(self) -> StateDict | None:
        """What the best knows beside its weights."""
        return self.beginnings[0].memory if self.beginnings else None

    def settle(self) -> None:
        """All who are to begin as another than the best have begun: only the best is needed still."""
        del self.beginnings[1:]

    def _at(self, number: int) -> Beginning:
        return self.beginnings[number if number < len(self.beginnings) else 0]

    def _weights(self, space: Space, number: int) -> NDArray[np.float32]:
        weights = self._at(number).weights if self.beginnings else space.weights_of(number)
        assert weights is not None
        return weights

    def _values(self, number: int) -> Mapping[str, Value]:
        """Of those beyond the beginnings none: a search that goes on drawing individuals would draw one for ever."""
        return self.beginnings[number].values if number < len(self.beginnings) else {}

    def state_dict(self) -> StateDict:
        return {str(n): {**one._asdict(), "values": dict(one.values)} for n, one in enumerate(self.beginnings)}

    def load_state_dict(self, state: StateDict) -> None:
        self.beginnings = [Beginning(**state[str(n)]) for n in range(len(state))]


def beginnings(init: Start, plan: Plan, most: int) -> list[Beginning]:
    """At most so many that a run gives, the best first. Raises `BadRequest` where they do not fit."""
    run = init.past
    people = inhabitants(run)
    genes = _genes(people, init.directory) if people else {}
    if plan.begin is None:
        if init.optimizer:
            raise BadRequest("a problem has no optimiser", "init_optimizer")
        return [Beginning(None, None, genes[one.id]) for one in _points(people, plan, init)[:most]]
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
    found = [Beginning(weights, _lean(memory, init.optimizer), genes[people[0].id] if people else {})]
    if people and np.array_equal(weights, _weights(people[0])):  # so theirs lie as ours do
        others = [one for one in people[1:] if one.weights is not None]  # not where they travelled by seed
        found += [Beginning(_weights(one), _lean(one.memory, init.optimizer), genes[one.id]) for one in others]
    return found[:most]


def inhabitants(run: StateDict) -> list[Individual]:
    """The individuals of a run's state that did not fail, the best first; none of a single run."""
    if "evolver" not in run:
        return []
    others = unpack_evaluations(run["evolver"]["population"])
    f = objectives(others)
    lost = failed(f) if others else ()
    order = [others[i] for i in best(f, len(others)) if not lost[i]] if others else []
    found = {one.individual.id: one.individual for one in [*unpack_evaluations(run["leader"]), *order]}
    return list(found.values())


def _genes(people: list[Individual], directory: Path) -> dict[int, dict[str, Value]]:
    """The genes of each by id, as their journal has them. Raises `BadRequest` where it has not."""
    found = {line.id: line.genes for line in journal(directory, "init")}
    for lost in [one.id for one in people if one.id not in found]:
        raise BadRequest(f"{directory / 'population.jsonl'} has no line of individual {lost}", "init")
    return found


def _points(people: list[Individual], plan: Plan, init: Start) -> list[Individual]:
    """Those of a problem that has as many numbers. Raises `BadRequest` for anybody else."""
    if not people or len(people[0].genes) != len(plan.space.genes) or people[0].weights is not None:
        count = len(plan.space.genes)
        raise BadRequest(f"{init.directory} is no evolution of a problem of {count} numbers", "init")
    return people


def _weights(one: Individual) -> NDArray[np.float32]:
    return np.asarray(one.weights, np.float32)


def _lean(memory: StateDict | None, optimizer: bool) -> StateDict | None:
    """What a memory hands on to another run, whose schedules begin anew."""
    if memory is None or "learner" not in memory:
        return {"moments": memory["moments"]} if memory and "moments" in memory else None  # a cap is of its own run
    names = INHERITED if optimizer else INHERITED[:1]
    return {"steps": 0, "learner": {name: memory["learner"][name] for name in names}}


class Told(msgspec.Struct):
    """What other runs need of a line of population.jsonl."""

    id: int
    step: int
    genes: dict[str, Any]
    objectives: dict[str, float | None]


def journal(directory: Path, key: str) -> list[Told]:
    """The whole lines, one at least, of a run's population.jsonl. Raises `BadRequest` (at ``key``)."""
    path, found = directory / "population.jsonl", list[Told]()
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        raise BadRequest(f"{directory} has no population.jsonl", key) from None
    if not lines:
        raise BadRequest(f"{path} has no whole line", key)
    decoder = msgspec.json.Decoder(Told)
    for line in lines:
        try:
            found.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"line {len(found) + 1} of {path} is damaged: {error}", key) from None
    return found
