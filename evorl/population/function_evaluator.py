"""Evaluates individuals of a problem, a function of their genes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import IndependentEvolution, Individual, unpack
from evorl.ec.space import Space
from evorl.mdp.core import StateDict
from evorl.mdp.problem import Problem
from evorl.population.evaluation_plan import EvaluationPlan
from evorl.population.results import IndividualResult, TaskResult, with_seconds

Array = NDArray[Any]


def function_plan(problem: Problem, evolution: IndependentEvolution) -> EvaluationPlan:
    low, high = problem.bounds
    together = evolution.together or evolution.slots or evolution.population
    return EvaluationPlan(
        Space.box(low.tolist(), high.tolist()), partial(FunctionEvaluator, problem), together, None, problem.names
    )


class FunctionEvaluator:
    """Evaluates a problem's function at the individuals' genes; each evaluation costs one step."""

    def __init__(self, problem: Problem, member: int) -> None:
        self.problem = problem

    def evaluate(self, packed: StateDict) -> TaskResult:
        return TaskResult(with_seconds(self._evaluate, unpack(packed)))

    def _evaluate(self, individuals: list[Individual]) -> list[IndividualResult]:
        values = self.problem.evaluate(np.array([individual.genes for individual in individuals]))
        return [IndividualResult(row, 1, self._named(row), None, None, "") for row in values.tolist()]

    def close(self) -> None:
        """Nothing is open."""

    def _named(self, row: list[float]) -> dict[str, Array]:
        return {name: np.array([x]) for name, x in zip(self.problem.names, row, strict=True)}
