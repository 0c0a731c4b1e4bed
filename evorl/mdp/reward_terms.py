"""The rewards of one's own in a config, ``reward``, in terms of what a world tells.

    r'_k = w_k r_k                                          for each named reward, w_k = 1 where the config has none
    r'_0 = w_0 r_0 + gamma Phi(s') - Phi(s) + sum_j v_j y_j

Phi(s) = sum_i p_i x_i is a potential over features of observations, y_j are results of the world
(`evorl.mdp.rewarded_world`).

Letters in shapes: B slots, D numbers of an observation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from evorl.mdp.core import Array, Spec, WorldError
from evorl.mdp.result_features import feature_names
from evorl.mdp.rewarded_world import RewardedWorld, Rewards, flat
from evorl.util.typed import unknown

KEY = "reward"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What training gets in place of the world's rewards."""

    weights: dict[str, float] = field(default_factory=dict)
    """Factors of the world's named rewards, by name; 1 for those that are not here."""
    potential: dict[str, float] = field(default_factory=dict)
    """Weights of features in a potential, by name, or observation_3, with which rewards are shaped."""
    results: dict[str, float] = field(default_factory=dict)
    """Weights of the world's results, which are added to the first reward at the end of an episode."""

    def __bool__(self) -> bool:
        return bool(self.weights or self.potential or self.results)


def features(spec: Spec, names: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Where each number of an observation stands among all D, by name: observation_3, and as the world calls it.

    Names of a world are written as keys are: ``cosine_1``.
    """
    places: dict[str, int] = {}
    own: dict[str, int] = {}
    for entry in spec.inputs:
        for number in range(math.prod(entry.shape)):
            place = len(places)
            places[f"{entry.name}_{number}"] = place
            if number < len(labels := names.get(entry.name, ())):
                own[re.sub(r"\W+", "_", labels[number])] = place
    return {**places, **own}


def vector(weights: Mapping[str, float], places: Mapping[str, int], key: str, otherwise: float) -> Array:
    """The weights as numbers in their places. Raises `BadRequest` for an unknown name."""
    numbers = np.full(max(places.values(), default=-1) + 1, otherwise)
    for name, weight in weights.items():
        if name not in places:
            raise unknown(name, places, f"{KEY}.{key}")
        numbers[places[name]] = weight
    return numbers


@dataclass(frozen=True, kw_only=True)
class Rewarded(RewardedWorld):
    """A world with these terms."""

    terms: Terms
    gamma: float | Mapping[str, float]
    """Discount per decision; by named reward, that of the first one counts."""

    def rewards(self, spec: Spec) -> TermRewards:
        return TermRewards(self, spec)


class TermRewards(Rewards):
    """The terms for the rewards and the numbers of observations of a world."""

    def __init__(self, rewarded: Rewarded, spec: Spec) -> None:
        terms, gamma = rewarded.terms, rewarded.gamma
        self.gamma = gamma[spec.rewards[0]] if isinstance(gamma, Mapping) else gamma
        self.shapes = bool(terms.potential)
        places = features(spec, feature_names(rewarded.world))
        self._factors = vector(terms.weights, {name: k for k, name in enumerate(spec.rewards)}, "weights", 1.0)
        self._features = vector(terms.potential, places, "potential", 0.0)
        self._results = terms.results

    def own(self, reward: Array) -> Array:
        return np.asarray(reward * self._factors)

    def value(self, inputs: tuple[Array, ...]) -> Array:
        return np.asarray(flat(inputs) @ self._features)

    def of_results(self, results: Mapping[str, float]) -> float:
        return sum(weight * _result(results, name) for name, weight in self._results.items())


def _result(results: Mapping[str, float], name: str) -> float:
    """A result by name. Raises `WorldError` if the world does not report it."""
    if name not in results:
        known = ", ".join(sorted(results)) or "none"
        raise WorldError(f"{KEY}.results: the world has no result {name}; it has: {known}")
    return results[name]
