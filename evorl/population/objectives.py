"""Objectives and results of individuals, computed from the episodes that they played."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Evolution, Objective, objective_weights, unknown_result
from evorl.mdp.core import World
from evorl.mdp.problem import Problem
from evorl.mdp.random_play import result_names
from evorl.population.results import IndividualResult
from evorl.rl.core import Episode

Array = NDArray[Any]
POINTS = "points"
"""The result with the points of an individual in the games that it learned from, against other individuals."""


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
    # an advance of a game counts once for all sides
    return result, int(sum(episode.length for episode in episodes[::sides]))


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
    episode. If a name is still unknown, one episode is played to see what the world reports (`result_names`). If that
    takes too long, the check passes.
    """
    known = {"fitness", *more} | (set() if isinstance(world, Problem) else {"return", "length"})
    if wanted.keys() <= known:
        return
    own = world.names if isinstance(world, Problem) else result_names(world.evaluation_world())
    if own is None:
        return
    for name, key in wanted.items():
        if name not in known.union(own):
            raise unknown_result(name, known.union(own), key)
