"""Limits of the budget: those that end a run, and what a resume must raise to go on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evorl.util.errors import BadRequest

if TYPE_CHECKING:
    from evorl.training.experiment import Experiment


def ended_by(result: Mapping[str, Any], budget: Mapping[str, Any]) -> dict[str, float]:
    """The limits of its budget that ended a run, with what it reached. Older versions did not write them."""
    if "ended_by" in result:
        return dict(result["ended_by"])
    limits = {name: budget[name] for name in ("seconds", "fitness") if None not in (budget[name], result[name])}
    return {name: result[name] for name, limit in limits.items() if result[name] >= limit} or {"steps": result["steps"]}


def larger_limits(result: Mapping[str, Any], budget: Mapping[str, Any]) -> list[str]:
    """The words that raise the limits which ended a run."""
    reached = ended_by(result, budget)
    words = ["budget.fitness=null"] * ("fitness" in reached)
    if "seconds" in reached:
        words.append(f"budget.seconds={math.ceil(2 * reached['seconds'])}")
    if "steps" in reached or not words:
        words.append(f"budget.steps={2 * result['steps']}")
    return words


def check_goes_on(result: Mapping[str, Any], past: Mapping[str, Any], experiment: Experiment) -> None:
    """Raise `BadRequest` if a run that has ended with the ``past`` budget has reached a limit of the present one."""
    budget, reached = experiment.budget, {"steps": result["steps"], "seconds": result["seconds"]}
    limits = {"steps": budget.steps or experiment.mdp.budget, "seconds": budget.seconds, "fitness": budget.fitness}
    for name, number in (reached | ended_by(result, past)).items():
        limit = limits[name]
        if limit is not None and number >= limit:
            raise BadRequest(f"the run has ended at {number:,.6g}; give a larger one as well", f"budget.{name}")


def check_fitness_limit(experiment: Experiment) -> None:
    """Raise `BadRequest` for ``budget.fitness`` where only evaluations are compared with it, and there are none.

    Of a population that the world's fitness ranks, the fitness of individuals is compared with it.
    """
    from evorl.ec.core import IndependentEvolution

    ec = experiment.ec
    own = isinstance(ec, IndependentEvolution) and not ec.opposes
    if not own and experiment.budget.fitness is not None and experiment.eval.every == 0:
        raise BadRequest("evaluations are compared with it, and eval.every=0 has none before the end", "budget.fitness")
