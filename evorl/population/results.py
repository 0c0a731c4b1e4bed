"""What an evaluation comes to: objectives by name, from the episodes that an individual has played."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Evaluation, Evolution, Individual, Objective, shares, title, unreported
from evorl.mdp.core import World
from evorl.mdp.problem import Problem
from evorl.mdp.random_play import result_names
from evorl.rl.core import Episode
from evorl.util import seed as seeds
from evorl.util.types import StateDict

Array = NDArray[Any]
PATIENCE_S = 5.0
"""Wall time, about, for an episode that shows what a world reports."""


class Answer(NamedTuple):
    """What became of an individual, as it comes from a member; plain data and arrays."""

    objectives: list[float]
    cost: int  # environment steps
    result: dict[str, Array]  # of each episode [E]
    weights: Array | None  # [D] where they changed
    memory: StateDict | None  # where it changed
    failed: str  # why it has no objectives; "" where it has
    seconds: float = 0.0  # of wall time; its share where several were evaluated together


class Answers(NamedTuple):
    """What became of the individuals of a task."""

    each: Sequence[Any]  # an `Answer` in order, or what is left of its type after a journey
    seen: StateDict | None = None  # statistics of all inputs that they decided on, where a population shares such


def evaluated(individual: Individual, answer: Sequence[Any]) -> tuple[Evaluation, str, float]:
    """A member's answer about an individual, why it failed ("" where it did not), and how many seconds it took."""
    one = Answer(*answer)
    if one.weights is not None:
        individual = individual._replace(weights=one.weights)
    if one.memory is not None:
        individual = individual._replace(memory=one.memory)
    return Evaluation(individual, tuple(one.objectives), one.cost, one.result), one.failed, one.seconds


def timed(evaluate: Callable[[list[Individual]], list[Answer]], individuals: list[Individual]) -> list[Answer]:
    """The answers, each with its share of the time that they took."""
    began = time.monotonic()
    answers = evaluate(individuals)
    share = (time.monotonic() - began) / len(answers)
    return [one._replace(seconds=share) for one in answers]


def fitness_episodes(seed: int, evolution: Evolution, width: int, ids: list[int]) -> seeds.Episodes:
    """The keys of ``width`` games of each individual: the same for all, or each individual's own."""
    common = evolution.seeds == "common"
    return seeds.Grouped(seed, evaluation=True, width=width, groups=tuple(
        "fitness" if common else f"fitness {number}" for number in ids
    ))  # fmt: skip


def answered(evolution: Evolution, episodes: list[Episode], sides: int = 1) -> Answer:
    """What the episodes of an individual, in order, come to; where it holds several ``sides`` of a game each is one.

    Raises `BadRequest` for an objective that they do not report.
    """
    found = sorted({name for one in episodes for name in one.results})
    result = {name: np.array([one.results[name] for one in episodes]) for name in found}
    result |= {"return": np.array([one.ret for one in episodes]), "length": np.array([one.length for one in episodes])}
    result.setdefault("fitness", result["return"])
    cost = int(sum(one.length for one in episodes[::sides]))  # an advance of a game counts once for all its sides
    return Answer([objective(one, result) for one in evolution.objectives], cost, result, None, None, "")


def names(evolution: Evolution) -> tuple[str, ...]:
    """Of the objectives: ``fitness``, ``fitness+0.5*lazy``."""
    return tuple(title(term) for term in evolution.objectives)


def objective(term: Objective, result: Mapping[str, Array], key: str = "ec.objectives") -> float:
    """A named result's mean over the episodes, or a weighted sum of such. Raises `BadRequest` for an unknown name."""
    weights = shares(term)
    for name in weights:
        if name not in result:
            raise unreported(name, result, key)
    return float(sum(weight * mean(result[name]) for name, weight in weights.items()))


def mean(x: Array) -> float:
    """Of a result in each episode [E]; NumPy's own takes twice as long, which tells with thousands of individuals, and
    where they play one episode each any sum does."""
    return float(x[0]) if len(x) == 1 else float(np.add.reduce(x, dtype=np.float64) / len(x))


def check_results(wanted: Mapping[str, str], world: World, more: Collection[str] = ()) -> None:
    """Raise `BadRequest` where results are wanted, each named at a key, that evaluations in a world will not have.

    ``more``: what they have beside an episode's own. Only where that is not enough an episode is played, to see what
    the world reports; where that takes too long nothing is known, and nothing is refused.
    """
    known = {"fitness", *more} | (set() if isinstance(world, Problem) else {"return", "length"})
    if wanted.keys() <= known:
        return
    own = world.names if isinstance(world, Problem) else result_names(world.judge(), PATIENCE_S)
    if own is None:
        return
    for name, key in wanted.items():
        if name not in known.union(own):
            raise unreported(name, known.union(own), key)


def nothing(evolution: Evolution, reason: str, cost: int = 0) -> Answer:
    """What there is of an individual that failed, after so many environment steps as far as they are known."""
    return Answer([math.nan] * len(evolution.objectives), cost, {}, None, None, reason)
