"""A world whose training has other rewards than its own: ``reward`` in the config.

    r'_k = w_k r_k                                          for each named reward, w_k = 1 where the config has none
    r'_0 = w_0 r_0 + gamma Phi(s') - Phi(s) + sum_j v_j y_j

s is the observation in which a side acts, s' that of its next decision. Phi(s) = sum_i p_i x_i is a potential over
features of observations, with which the best policies stay the same (A. Ng, D. Harada, S. Russell, "Policy invariance
under reward transformations", ICML 1999). It is 0 in a terminal state (M. Grzes, "Reward shaping in episodic
reinforcement learning", AAMAS 2017), and that of the last observation where an episode is truncated. y_j are results of
the world, once, with the last reward of an episode. Evaluations play the world without any of this.

Letters in shapes: B slots, R rewards, D numbers of an observation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from evorl.mdp.core import Arena, Array, Decisions, Spec, StateDict, StepsTogether, World, WorldError
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes
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
            if number < len(told := names.get(entry.name, ())):
                own[re.sub(r"\W+", "_", told[number])] = place
    return {**places, **own}


def vector(weights: Mapping[str, float], places: Mapping[str, int], key: str, otherwise: float) -> Array:
    """The weights as numbers in their places. Raises `BadRequest` for an unknown name."""
    found = np.full(max(places.values(), default=-1) + 1, otherwise)
    for name, weight in weights.items():
        if name not in places:
            raise unknown(name, places, f"{KEY}.{key}")
        found[places[name]] = weight
    return found


@dataclass(frozen=True, kw_only=True)
class Rewarded(World):
    """A world with these terms."""

    world: World
    terms: Terms
    gamma: float | Mapping[str, float]
    """Discount per decision; by named reward, that of the first one counts."""

    @property
    def sides(self) -> int:
        return self.world.sides

    @property
    def team_sides(self) -> int:
        return self.world.team_sides

    @property
    def longest_episode(self) -> int | None:
        return self.world.longest_episode

    @property
    def limited(self) -> bool:
        return self.world.limited

    @property
    def takes_rule_action(self) -> bool:
        return self.world.takes_rule_action

    def players(self, seed: int) -> tuple[int, ...]:
        return self.world.players(seed)

    def evaluation_world(self) -> World:
        return self.world.evaluation_world()

    def close(self) -> None:
        self.world.close()

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        """Raises `BadRequest` for a reward or a feature that the world does not have."""
        arena = self.world.arena(slots, episodes)
        try:
            return (TogetherArena if isinstance(arena, StepsTogether) else TermsArena)(arena, self)
        except BadRequest:
            arena.close()
            raise


class TermsArena:
    """The arena of a world, with these rewards."""

    def __init__(self, arena: Arena, rewarded: Rewarded) -> None:
        self.arena, terms, gamma = arena, rewarded.terms, rewarded.gamma
        self.spec, self.slots, self.sides = arena.spec, arena.slots, arena.sides
        self.gamma = gamma[self.spec.rewards[0]] if isinstance(gamma, Mapping) else gamma
        rewards = {name: number for number, name in enumerate(self.spec.rewards)}
        places = features(self.spec, rewarded.world.feature_names)
        self._factors = vector(terms.weights, rewards, "weights", 1.0)
        self._features = vector(terms.potential, places, "potential", 0.0) if terms.potential else None
        self._results = terms.results
        self._potential = np.zeros(self.slots)  # of the newest observation of each slot
        self._before = np.zeros(self.slots)  # of the observation in which a slot acted
        self._acted = np.zeros(self.slots, np.bool_)  # since the arena began or was loaded
        self._reward = np.zeros((self.slots, len(self.spec.rewards)), np.float32)

    def recv(self) -> Decisions:
        decisions = self.arena.recv()
        rows = decisions.slots
        self._reward[rows] = decisions.reward[rows] * self._factors
        acted = self._acted.copy()
        acted[decisions.failed] = False
        if self._features is not None:
            self._potential[rows] = self._phi(decisions.inputs)[rows]
            new = rows[acted[rows]]
            self._reward[new, 0] += self._shaping(decisions)[new]
        for slot, results in decisions.results if self._results else ():
            if acted[slot]:
                self._reward[slot, 0] += sum(weight * _result(results, name) for name, weight in self._results.items())
        return replace(decisions, reward=self._reward)

    def _phi(self, inputs: tuple[Array, ...]) -> Array:
        """Phi of observations, [B]."""
        assert self._features is not None
        x = np.concatenate([part.reshape(len(part), -1).astype(np.float64) for part in inputs], 1)
        return np.asarray(x @ self._features)

    def _shaping(self, decisions: Decisions) -> Array:
        """gamma Phi(s') - Phi(s) of the last action of each slot, [B]."""
        after = np.where(decisions.terminated, 0.0, self._potential)
        cut = decisions.truncated & ~decisions.terminated
        if cut.any():
            after = np.where(cut, self._phi(decisions.final), after)
        return np.asarray(self.gamma * after - self._before)

    def send(self, slots: Array, actions: Array) -> None:
        self._before[slots] = self._potential[slots]
        self._acted[slots] = True
        self.arena.send(slots, actions)

    def render(self, slot: int = 0) -> Array | None:
        return self.arena.render(slot)

    def state_dict(self) -> StateDict:
        return self.arena.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """The potentials of the present observations follow from these."""
        self.arena.load_state_dict(state)
        self._acted[:] = False

    def close(self) -> None:
        self.arena.close()


class TogetherArena(TermsArena, StepsTogether):
    """The same where all slots step together."""


def _result(results: Mapping[str, float], name: str) -> float:
    """A result by name. Raises `WorldError` if the world does not report it."""
    if name not in results:
        known = ", ".join(sorted(results)) or "none"
        raise WorldError(f"{KEY}.results: the world has no result {name}; it has: {known}")
    return results[name]
