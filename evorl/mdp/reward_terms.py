"""The rewards of one's own in a config, ``reward``, in terms of what a world tells.

    r'_k = sum_{i in S_k} w_i r_i    for each reward of training, w_i = 1 where the config has none
    r'_0 = the same + gamma Phi(s') - Phi(s) + sum_j v_j y_j

S_k are the world's named rewards of which reward k is the sum: a single one where the config sums none. Each of the
world's is in one S_k, and its first in S_0, so sums do not change the sum over k. Phi(s) = sum_i p_i x_i is a potential
over features of observations, y_j are results of the world (`evorl.mdp.rewarded_world`).

Letters in shapes: n decisions, B slots, R rewards of the world, K rewards of training, D numbers of an observation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from evorl.mdp.core import Array, Spec, WorldError, check_name
from evorl.mdp.random_play import result_names
from evorl.mdp.result_features import feature_names
from evorl.mdp.rewarded_world import RewardedWorld, Rewards, flat
from evorl.util.errors import BadRequest, nearest_or_all
from evorl.util.typed import unknown

KEY = "reward"
GENERAL = frozenset({"return"})
"""Results that an episode of any world has, within `RewardedArena`."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What training gets in place of the world's rewards."""

    weights: dict[str, float] = field(default_factory=dict)
    """Factors of the world's named rewards, by name; 1 for those that are not here."""
    sums: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Named rewards that are sums of these of the world, after their weights, and take their place."""
    potential: dict[str, float] = field(default_factory=dict)
    """Weights of features in a potential, by name, or observation_3, with which rewards are shaped."""
    results: dict[str, float] = field(default_factory=dict)
    """Weights of the world's results, which are added to the first reward at the end of an episode."""

    def __post_init__(self) -> None:
        """Raises `BadRequest` for sums that no world can have."""
        sum_of: dict[str, str] = {}
        for name, parts in self.sums.items():
            key = f"sums.{name}"
            try:
                check_name(name)
            except WorldError as error:
                raise BadRequest(str(error), key) from None
            if not parts:
                raise BadRequest("a sum needs rewards, as in [progress, approach]", key)
            for part in parts:
                if part in sum_of:
                    raise BadRequest(f"{part} is in {sum_of[part]} already, and a reward counts once", key)
                sum_of[part] = name

    def __bool__(self) -> bool:
        return bool(self.weights or self.sums or self.potential or self.results)

    def grouped(self, rewards: Sequence[str]) -> dict[str, list[str]]:
        """The rewards of training, in order, each with those of the world that make it. Raises `BadRequest`."""
        sum_of = {part: name for name, parts in self.sums.items() for part in parts}
        for name, parts in self.sums.items():
            if wrong := [part for part in parts if part not in rewards]:
                raise BadRequest(f"no reward {wrong[0]}{nearest_or_all(wrong[0], rewards)}", f"{KEY}.sums.{name}")
            if name in rewards and name not in parts:
                raise BadRequest("the world has a reward of this name, which is not in the sum", f"{KEY}.sums.{name}")
        groups: dict[str, list[str]] = {}
        for reward in rewards:
            groups.setdefault(sum_of.get(reward, reward), []).append(reward)
        return groups

    def spec(self, own: Spec) -> Spec:
        """A world's interface with the rewards of training. Raises `BadRequest`."""
        return replace(own, rewards=tuple(self.grouped(own.rewards)))


def features(spec: Spec, names: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Where each number of an observation stands among all D, by name: observation_3, and as the world calls it.

    Names of a world are written as keys are: ``cosine_1``. A name that would be that of several numbers is none.
    """
    places: dict[str, int] = {}
    own: dict[str, list[int]] = {}
    for entry in spec.inputs:
        for number in range(math.prod(entry.shape)):
            place = len(places)
            places[f"{entry.name}_{number}"] = place
            if number < len(labels := names.get(entry.name, ())):
                own.setdefault(re.sub(r"\W+", "_", labels[number]), []).append(place)
    return places | {name: at[0] for name, at in own.items() if len(at) == 1 and name not in places}


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
    """Discount per decision; by named reward of training, that of the first one counts."""

    def rewards(self, spec: Spec) -> TermRewards:
        return TermRewards(self, spec)

    def check_results(self) -> None:
        """Raise `BadRequest` for a result that the world does not report at the end of a random episode."""
        if self.terms.results.keys() <= GENERAL or (own := result_names(self.world)) is None:
            return
        for name in self.terms.results:
            if name not in own | GENERAL:
                raise unknown(name, sorted(own | GENERAL), f"{KEY}.results")


class TermRewards(Rewards):
    """The terms for the rewards and the numbers of observations of a world."""

    def __init__(self, rewarded: Rewarded, spec: Spec) -> None:
        terms, gamma = rewarded.terms, rewarded.gamma
        own, groups = {name: k for k, name in enumerate(spec.rewards)}, terms.grouped(spec.rewards)
        # a learner refuses discounts that lack one
        self.gamma = gamma.get(next(iter(groups)), 0.0) if isinstance(gamma, Mapping) else gamma
        self.shapes = bool(terms.potential)
        places = features(spec, feature_names(rewarded.world))
        self._factors = vector(terms.weights, own, "weights", 1.0)
        self._order = [own[name] for parts in groups.values() for name in parts]  # those of a sum side by side
        self._begins = [0, *accumulate(len(parts) for parts in groups.values())][:-1]
        self._features = vector(terms.potential, places, "potential", 0.0)
        self._terms = terms

    def spec(self, own: Spec) -> Spec:
        return self._terms.spec(own)

    def own(self, reward: Array) -> Array:
        return np.asarray(np.add.reduceat((reward * self._factors)[:, self._order], self._begins, 1))

    def value(self, inputs: tuple[Array, ...]) -> Array:
        return np.asarray(flat(inputs) @ self._features)

    def of_results(self, results: Mapping[str, float]) -> float:
        return sum(weight * _result(results, name) for name, weight in self._terms.results.items())


def _result(results: Mapping[str, float], name: str) -> float:
    """A result by name. Raises `WorldError` if the world does not report it."""
    if name not in results:
        known = ", ".join(sorted(results)) or "none"
        raise WorldError(f"{KEY}.results: the world has no result {name}; it has: {known}")
    return results[name]
