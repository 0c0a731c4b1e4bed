"""A reward of its own for training: a small network over the observation, beside the rewards of the world.

    immediate:  r'_0 = r_0 + f(s)
    potential:  r'_0 = r_0 + gamma f(s') - f(s)

s and s' are those of `evorl.mdp.rewarded_world`.

Letters in shapes: B slots, D numbers of an observation, H hidden units, W weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from evorl.mdp.begin import begin
from evorl.mdp.core import Array, Spec, World
from evorl.mdp.random_play import random_action
from evorl.mdp.rewarded_world import RewardedWorld, Rewards, flat
from evorl.util.heartbeat import heartbeat
from evorl.util.seed import Episodes, generator

Kind = Literal["immediate", "potential"]
DECISIONS = 1000
"""Of random play, which says in what units observations are."""


class Scales(NamedTuple):
    """Means and standard deviations of the numbers of an observation, [D]; a deviation of 1 where a number is fixed."""

    mean: Array
    deviation: Array


class RewardNetwork:
    """f(x) = scale tanh(w2 tanh(W1 x + b1) + b2), or scale tanh(w2 x + b2) without hidden units; x is standardised."""

    def __init__(self, weights: Array, hidden: int, scale: float, scales: Scales) -> None:
        """``weights`` [W]: W1 by rows, b1, w2, b2."""
        size = len(scales.mean)
        self.scale, self.scales = scale, scales
        first, second, last = np.split(weights, [hidden * size, hidden * size + hidden])
        self.first = (first.reshape(hidden, size).T, second) if hidden else None
        self.last = last[:-1], last[-1]

    @staticmethod
    def weights(size: int, hidden: int) -> int:
        """W"""
        return hidden * size + hidden + hidden + 1 if hidden else size + 1

    def __call__(self, inputs: tuple[Array, ...]) -> Array:
        """[B], of observations [B, ...]."""
        x = (flat(inputs) - self.scales.mean) / self.scales.deviation
        if self.first is not None:
            x = np.tanh(x @ self.first[0] + self.first[1])
        return np.asarray(self.scale * np.tanh(x @ self.last[0] + self.last[1]))


def numbers(spec: Spec) -> int:
    """D"""
    return sum(math.prod(x.shape) for x in spec.inputs)


def scales(world: World) -> Scales:
    """Those of random play in a copy of the world: a function of the world alone."""
    draw, seen = generator("scales"), list[Array]()
    with closing(replace(world)) as own, closing(begin(own, own.sides, Episodes(0, "scales"))) as arena:
        while sum(map(len, seen)) < DECISIONS:
            heartbeat()
            decisions = arena.recv()
            rows = decisions.slots
            seen.append(flat(decisions.inputs)[rows])
            legal = [None if decisions.legal is None else decisions.legal[slot] for slot in rows]
            arena.send(rows, np.stack([random_action(arena.spec, mask, draw) for mask in legal]))
    x = np.concatenate(seen)
    deviation = x.std(0)
    return Scales(x.mean(0), np.where(deviation > 1e-9, deviation, 1.0))


@dataclass(frozen=True, kw_only=True)
class Shaped(RewardedWorld):
    """A world whose training has this reward besides."""

    kind: Kind
    reward: Callable[[tuple[Array, ...]], Array]
    gamma: float

    def rewards(self, spec: Spec) -> NetworkRewards:
        return NetworkRewards(self)


class NetworkRewards(Rewards):
    """The reward of a network, beside those of the world."""

    def __init__(self, shaped: Shaped) -> None:
        self.gamma, self._shaped = shaped.gamma, shaped

    def value(self, inputs: tuple[Array, ...]) -> Array:
        return self._shaped.reward(inputs)

    def added(self, before: Array, after: Array) -> Array:
        return before if self._shaped.kind == "immediate" else super().added(before, after)
