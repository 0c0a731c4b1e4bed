"""A world with a reward of its own beside its rewards: a small network over the observation.

    immediate:  r' = r + f(s)
    potential:  r' = r + gamma f(s') - f(s),  f = 0 at a terminal state

s is the observation in which a side acts, s' that of its next decision, or the last one of a truncated episode. With a
potential the best policies stay the same (A. Ng, D. Harada, S. Russell, "Policy invariance under reward
transformations", ICML 1999; f = 0 at the end: M. Grzes, "Reward shaping in episodic reinforcement learning", AAMAS
2017). It is added to the first of the named rewards. Evaluations play the world without it.

Letters in shapes: B slots, D numbers of an observation, H hidden units, W weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from evorl.mdp.core import Arena, Array, Decisions, Spec, StateDict, StepsTogether, World
from evorl.mdp.random_play import random_action
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


def flat(inputs: tuple[Array, ...]) -> Array:
    """All numbers of observations side by side, float64 [B, D]."""
    return np.concatenate([x.reshape(len(x), -1).astype(np.float64) for x in inputs], 1)


def numbers(spec: Spec) -> int:
    """D"""
    return sum(math.prod(x.shape) for x in spec.inputs)


def scales(world: World) -> Scales:
    """Those of random play in a copy of the world: a function of the world alone."""
    draw, seen = generator("scales"), list[Array]()
    with closing(replace(world)) as own, closing(own.arena(own.sides, Episodes(0, "scales"))) as arena:
        while sum(map(len, seen)) < DECISIONS:
            decisions = arena.recv()
            rows = decisions.slots
            seen.append(flat(decisions.inputs)[rows])
            legal = [None if decisions.legal is None else decisions.legal[slot] for slot in rows]
            arena.send(rows, np.stack([random_action(arena.spec, mask, draw) for mask in legal]))
    x = np.concatenate(seen)
    deviation = x.std(0)
    return Scales(x.mean(0), np.where(deviation > 1e-9, deviation, 1.0))


@dataclass(frozen=True, kw_only=True)
class Shaped(World):
    """A world whose training has this reward besides."""

    world: World
    kind: Kind
    reward: Callable[[tuple[Array, ...]], Array]
    gamma: float

    @property
    def sides(self) -> int:
        return self.world.sides

    @property
    def longest_episode(self) -> int | None:
        return self.world.longest_episode

    @property
    def limited(self) -> bool:
        return self.world.limited

    def players(self, seed: int) -> tuple[int, ...]:
        return self.world.players(seed)

    def evaluation_world(self) -> World:
        return self.world.evaluation_world()

    def ready(self) -> None:
        self.world.ready()

    def close(self) -> None:
        self.world.close()

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        arena = self.world.arena(slots, episodes)
        kind = TogetherArena if isinstance(arena, StepsTogether) else ShapedArena
        return kind(arena, self)


class ShapedArena:
    """The arena of a world, with another reward."""

    def __init__(self, arena: Arena, shaped: Shaped) -> None:
        self.arena, self.shaped = arena, shaped
        self.spec, self.slots, self.sides = arena.spec, arena.slots, arena.sides
        self._value = np.zeros(self.slots)  # f of the newest observation
        self._before = np.zeros(self.slots)  # f of the observation in which a slot acted
        self._acted = np.zeros(self.slots, np.bool_)  # since the arena began or was loaded
        self._reward = np.zeros((self.slots, len(self.spec.rewards)), np.float32)

    def recv(self) -> Decisions:
        decisions = self.arena.recv()
        rows = decisions.slots
        self._value[rows] = self.shaped.reward(decisions.inputs)[rows]
        self._reward[rows] = decisions.reward[rows]
        acted = self._acted.copy()
        acted[decisions.failed] = False
        new = rows[acted[rows]]
        self._reward[new, 0] += self._added(decisions)[new]
        return replace(decisions, reward=self._reward)

    def _added(self, decisions: Decisions) -> Array:
        """What is added for the last action of each slot, [B]."""
        if self.shaped.kind == "immediate":
            return self._before
        after = np.where(decisions.terminated, 0.0, self._value)
        cut = decisions.truncated & ~decisions.terminated
        if cut.any():
            after = np.where(cut, self.shaped.reward(decisions.final), after)
        return np.asarray(self.shaped.gamma * after - self._before)

    def send(self, slots: Array, actions: Array) -> None:
        self._before[slots] = self._value[slots]
        self._acted[slots] = True
        self.arena.send(slots, actions)

    def render(self, slot: int = 0) -> Array | None:
        return self.arena.render(slot)

    def state_dict(self) -> StateDict:
        return self.arena.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self.arena.load_state_dict(state)
        self._acted[:] = False

    def close(self) -> None:
        self.arena.close()


class TogetherArena(ShapedArena, StepsTogether):
    """The same where all slots step together."""
