"""The conformance test of evolvers: ours pass it, and an evolver that breaks a rule is told which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from evorl.ec.cem import CEM
from evorl.ec.conformance import Nonconformity, check
from evorl.ec.core import IndependentEvolution, Individual
from evorl.ec.sga import SGA, Strategy
from evorl.ec.space import Space


@pytest.mark.slow_cases("CEM")
@pytest.mark.parametrize(
    "evolution", [SGA(population=6), CEM(population=6)], ids=lambda evolution: type(evolution).__name__
)
def test_ours_conform(evolution: IndependentEvolution) -> None:
    check(evolution)


def broken(**methods: Callable[..., Any]) -> SGA:
    """A genetic algorithm whose evolver has these methods instead."""
    kind = type("Broken", (Strategy,), methods)

    @dataclass(frozen=True, kw_only=True)
    class Mine(SGA):
        def evolver(self, space: Space, seed: int = 0) -> Strategy:
            made: Strategy = kind(self, space, seed)
            return made

    return Mine(population=6)


def changed(**fields: Callable[[Individual], Any]) -> Callable[..., Individual]:
    """`Strategy.new`, with other fields of the individual."""

    def new(self: Strategy, **given: Any) -> Individual:
        individual = Strategy.new(self, **given)
        return individual._replace(**{name: change(individual) for name, change in fields.items()})

    return new


class Counting:
    calls = 0


def drifting(self: Strategy, generator: np.random.Generator) -> list[Individual]:
    Counting.calls += 1
    span = self.space.high - self.space.low
    genes = self.space.low + span / (1 + Counting.calls)
    return [x._replace(genes=genes) for x in Strategy.propose(self, generator)]


def forgetful(self: Strategy) -> Any:
    return {**Strategy.state_dict(self), "proposed": 0}


@pytest.mark.parametrize(
    ("methods", "line"),
    [
        ({"new": changed(id=lambda x: x.id // 2)}, "two individuals have the same id"),
        ({"new": changed(genes=lambda x: x.genes + 2)}, "individual 0 has a gene out of its range"),
        ({"new": changed(genes=lambda x: x.genes[:1])}, "individual 0 must have 4 genes in float64"),
        (
            {"new": changed(weights=lambda x: x.weights.astype(np.float64))},
            "individual 0 lacks 5 finite weights in float32",
        ),
        ({"new": changed(parents=lambda x: (x.id + 1,))}, "individual 0 has a parent that did not come before it"),
        ({"new": changed(role=lambda x: "")}, "individual 0 has no role"),
        ({"state_dict": forgetful}, "after its state was saved and restored it goes another way"),
        ({"state_dict": lambda self: {**Strategy.state_dict(self), "seen": {1}}}, "its state holds a set"),
        ({"propose": drifting}, ""),
        ({"ask": lambda self, limit=None: []}, "it neither proposes nor waits for anybody"),
    ],
)
def test_a_rule_that_is_broken(methods: dict[str, Any], line: str) -> None:
    with pytest.raises(Nonconformity) as told:
        check(broken(**methods), spaces=["genes and weights"])
    where, _, why = str(told.value).partition(": ")
    assert where == "searching genes and weights, by generations" and why.startswith(line)
