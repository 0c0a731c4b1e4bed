"""Turns played episodes into an Evaluation: objectives, results and cost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import (
    Evaluation,
    Evolution,
    Individual,
    Objective,
    objective_weights,
    objectives,
    unknown_result,
)
from evorl.ec.space import Space
from evorl.mdp.core import World
from evorl.mdp.problem import Problem
from evorl.mdp.random_play import result_names
from evorl.ops.pareto import best
from evorl.record.terminal import TABLE_ROWS
from evorl.rl.core import Episode
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict

Array = NDArray[Any]
POINTS = "points"
"""The result that tells the points of an individual in the games that it learned from, against other individuals."""
PATIENCE_S = 5.0
"""Approximate limit on the wall time of the one episode that `check_results` plays."""


class IndividualResult(NamedTuple):
    """The outcome of one individual, as a worker sends it: plain data and arrays."""

    objectives: list[float]
    cost: int  # environment steps
    result: dict[str, Array]  # by name, one number per episode [E]
    weights: Array | None  # [D]; None if unchanged
    memory: StateDict | None  # None if unchanged
    failed: str  # the reason if the individual has no objectives, else ""
    seconds: float = 0.0  # wall time; an equal share if several were evaluated together


class TaskResult(NamedTuple):
    """The outcomes of the individuals of one task."""

    each: Sequence[Any]  # an `IndividualResult` each, in order; a plain sequence after it was sent as a message
    seen: StateDict | None = None  # statistics of all observed inputs, if the population shares them


def to_evaluation(individual: Individual, answer: Sequence[Any]) -> tuple[Evaluation, str, float]:
    """Return the evaluation of an individual, the reason of its failure ("" if none) and its wall time in seconds."""
    result = IndividualResult(*answer)
    if result.weights is not None:
        individual = individual._replace(weights=result.weights)
    if result.memory is not None:
        individual = individual._replace(memory=result.memory)
    return Evaluation(individual, tuple(result.objectives), result.cost, result.result), result.failed, result.seconds


def with_seconds(
    evaluate: Callable[[list[Individual]], list[IndividualResult]], individuals: list[Individual]
) -> list[IndividualResult]:
    """Evaluate the individuals; each result holds an equal share of the wall time."""
    began = time.monotonic()
    answers = evaluate(individuals)
    share = (time.monotonic() - began) / len(answers)
    return [answer._replace(seconds=share) for answer in answers]


def result_of_episodes(
    evolution: Evolution, episodes: list[Episode], sides: int = 1, points: Array | None = None
) -> IndividualResult:
    """Turn the episodes of an individual, in order, into its objectives, results and cost.

    An individual that plays ``sides`` > 1 sides of a game has that many episodes per game. ``points`` are those of the
    games that it learned from, if its opponents were individuals: its result `POINTS`, one half if no game ended.
    Raises `BadRequest` for an objective that the episodes do not report.
    """
    result, cost = numbers_of_episodes(episodes, sides)
    if points is not None:
        result[POINTS] = points if len(points) else np.array([0.5])
    return IndividualResult(
        [objective_value(objective, result) for objective in evolution.objectives], cost, result, None, None, ""
    )


def numbers_of_episodes(episodes: Sequence[Episode], sides: int) -> tuple[dict[str, Array], int]:
    """Return each result in every episode [E], by name, and the environment steps of all of them."""
    names = sorted({name for episode in episodes for name in episode.results})
    result = {name: np.array([episode.results[name] for episode in episodes]) for name in names}
    result |= {
        "return": np.array([episode.ret for episode in episodes]),
        "length": np.array([episode.length for episode in episodes]),
    }
    result.setdefault("fitness", result["return"])
    return result, int(
        sum(episode.length for episode in episodes[::sides])
    )  # an advance of a game counts once for all sides


def objective_value(term: Objective, result: Mapping[str, Array], key: str = "ec.objectives") -> float:
    """Return the mean of a result over the episodes, or a weighted sum. Raises `BadRequest` for an unknown name."""
    weights = objective_weights(term)
    for name in weights:
        if name not in result:
            raise unknown_result(name, result, key)
    return float(sum(weight * mean(result[name]) for name, weight in weights.items()))


def mean(x: Array) -> float:
    """Return the mean of a result over episodes [E]. ``numpy.mean`` takes twice as long, which matters for thousands of
    individuals."""
    return float(x[0]) if len(x) == 1 else float(np.add.reduce(x, dtype=np.float64) / len(x))


def check_results(wanted: Mapping[str, str], world: World, more: Collection[str] = ()) -> None:
    """Raise `BadRequest` for a wanted result that evaluations in this world do not have.

    ``wanted`` maps each result's name to the config key that names it. ``more`` are known names beside those of an
    episode. If a name is still unknown, one episode is played to see what the world reports. If that takes longer than
    about `PATIENCE_S`, the check passes.
    """
    known = {"fitness", *more} | (set() if isinstance(world, Problem) else {"return", "length"})
    if wanted.keys() <= known:
        return
    own = world.names if isinstance(world, Problem) else result_names(world.evaluation_world(), PATIENCE_S)
    if own is None:
        return
    for name, key in wanted.items():
        if name not in known.union(own):
            raise unknown_result(name, known.union(own), key)


def population_row(
    evaluation: Evaluation, space: Space, names: Sequence[str], step: int, seconds: float
) -> dict[str, Any]:
    """Return a line of population.jsonl; ``names`` are those of the objectives."""
    this = evaluation.individual
    return {
        "id": this.id, "parents": list(this.parents), "role": this.role, "birth": this.birth,
        "genes": space.values(this.genes), "cost": evaluation.cost,
        "objectives": dict(zip(names, evaluation.objectives, strict=True)),  # null unless finite
        "results": {name: mean(x) for name, x in evaluation.result.items()},
        "step": step, "seconds": round(seconds, 6),
    }  # fmt: skip


def top_rows(population: Sequence[Evaluation], space: Space, names: Sequence[str], births: int) -> list[dict[str, Any]]:
    """Return the best individuals of a population as rows of a table.

    ``names`` are those of the objectives. ``births``: the present value of what an individual's ``birth`` counts.
    """
    if not population:
        return []
    return [
        {
            "individual": evaluation.individual.id, **dict(zip(names, evaluation.objectives, strict=True)),
            "role": evaluation.individual.role,
            "age": births - evaluation.individual.birth, "parents": " ".join(map(str, evaluation.individual.parents)),
            **space.values(evaluation.individual.genes),
        }
        for evaluation in (population[i] for i in best(objectives(population), TABLE_ROWS))
    ]  # fmt: skip


@contextmanager
def errors_under_ec() -> Iterator[None]:
    """Put the keys of an evolver's errors under ``ec``."""
    try:
        yield
    except BadRequest as error:
        raise error.under("ec") from None


def failed_result(evolution: Evolution, reason: str, cost: int = 0) -> IndividualResult:
    """What there is of an individual that failed, after so many environment steps as far as they are known."""
    return IndividualResult([math.nan] * len(evolution.objectives), cost, {}, None, None, reason)
