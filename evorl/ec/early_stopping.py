"""What searches with early stopping share: all configurations train for a small share of the budget, the best go on.

The whole budget of a configuration is ``R`` units of resource, of which it first gets ``r`` or more. A promoted
individual continues from where it stopped, with ``eta`` times the resource. A search over jobs resumes the job of a
promoted configuration, with ``budget.steps`` as the R units. Within a run the learner trains on, and ``ec.train_steps``
are the R units. Who is promoted is decided in `evorl.ec.asha` and `evorl.ec.hyperband`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from evorl.ec.core import Evaluation, Evolution, IndependentEvolution, Individual
from evorl.ec.generational import Generational
from evorl.ec.space import Space
from evorl.ec.vectors import fitness
from evorl.util.errors import BadRequest
from evorl.util.types import Count, StateDict

Eta = Annotated[int, Meta(ge=2)]


@dataclass(frozen=True, kw_only=True)
class EarlyStopping(IndependentEvolution):
    """Resources, in units of which a whole budget has R. A child is its parent, which goes on."""

    population: Count = 8
    """Configurations that train at once."""
    lifetime: Literal["play", "train"] = "train"
    inherit_optimizer: bool = True
    eta: Eta = 4
    """Of eta configurations one is promoted, and trains for eta times as long."""
    r: Count = 1
    """Units of resource that a configuration gets at least."""
    R: Count = 64
    """Units of resource of the whole budget: budget.steps of a job, ec.train_steps within a run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lifetime == "play":
            raise BadRequest("what is stopped early is training; take lifetime=train", "lifetime")
        if self.r > self.R:
            raise BadRequest(f"{self.r} is more than the whole budget of R={self.R} units", "r")

    @property
    def rungs(self) -> int:
        """floor(log_eta(R / r)): how often a configuration that begins with r units can be promoted."""
        count = 0
        while self.r * self.eta ** (count + 1) <= self.R:
            count += 1
        return count


def trains_until(evolution: IndependentEvolution, individual: Individual, began: int) -> int:
    """The step at which the training of an individual ends within a run; its ancestors trained for ``began`` steps."""
    if isinstance(evolution, EarlyStopping):
        return resource(individual, evolution.train_steps)
    return began + evolution.train_steps


def least_steps(evolution: IndependentEvolution) -> int:
    """The environment steps for which an individual that has begun trains at least, within a run."""
    share = Fraction(evolution.r, evolution.R) if isinstance(evolution, EarlyStopping) else 1
    return ceil(share * evolution.train_steps)


def resource(individual: Individual, budget: int) -> int:
    """The environment steps of a whole budget that a configuration has had when it is evaluated."""
    return ceil(Fraction(part(individual)) * budget)


def part(individual: Individual) -> str:
    """The share of the whole budget that a configuration has had when it is evaluated: the end of its role, as 4/64."""
    return individual.role.split()[-1]


def top(evaluations: Sequence[Evaluation], k: int) -> list[Evaluation]:
    """The k best that did not fail, or as many as there are; of equals the first asked for comes first."""
    pairs = [(f, evaluation) for evaluation, f in zip(evaluations, fitness(evaluations), strict=True) if f > -inf]
    return [evaluation for _, evaluation in sorted(pairs, key=lambda pair: (-pair[0], pair[1].individual.id))[:k]]


class Promoting(Generational):
    """Proposes configurations, drawn anew or promoted."""

    def __init__(self, hyper: Evolution, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.draws = 0  # configurations drawn

    @property
    def begun(self) -> int:
        """Configurations that were drawn and asked for."""
        return self.draws - sum(individual.role.startswith("initial") for individual in self._queue)

    def drawn(self, generator: np.random.Generator, part: str) -> Individual:
        """A random configuration, or the next one of another run, which gets this share of the budget."""
        number = self.draws if self.space.takes_over(self.draws) else self.next_id  # promotions use up ids
        self.draws += 1
        genes, weights = self.space.begin(generator, number)[0], self.space.weights_of(number)
        return self.new(genes=genes, weights=weights, role=f"initial {part}")

    def promoted(self, evaluation: Evaluation, part: str) -> Individual:
        """The configuration of an evaluation, which goes on until it had this share of the budget."""
        before = evaluation.individual
        return self.new(
            genes=before.genes, weights=before.weights, memory=before.memory, parents=(before.id,),
            role=f"promoted {part}",
        )  # fmt: skip

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "draws": self.draws}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.draws = state.get("draws", self.next_id)  # checkpoints of 0.1.0 counted by ids
