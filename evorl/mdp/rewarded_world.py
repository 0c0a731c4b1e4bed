"""A world whose training has other rewards than its own. Evaluations play the world as it is.

    r'_k = own(r)_k                                for each named reward of training
    r'_0 = own(r)_0 + gamma f(s') - f(s) + h(y)    or what `Rewards.added` makes of f(s) and f(s')

s is the observation in which a side acts, s' that of its next decision. With a potential f the best policies stay the
same (A. Ng, D. Harada, S. Russell, "Policy invariance under reward transformations", ICML 1999). It is 0 in a
terminal state (M. Grzes, "Reward shaping in episodic reinforcement learning", AAMAS 2017), and that of the last
observation where an episode is truncated. y are the results of the world, with the last reward of an episode. A step
that failed gets nothing.

Letters in shapes: n decisions, B slots, R rewards of the world, K rewards of training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from evorl.mdp.begin import begin
from evorl.mdp.core import Arena, Array, Decisions, Spec, StateDict, World
from evorl.mdp.wrapped_arena import WrappedArena, around
from evorl.mdp.wrapped_world import WrappedWorld
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes


class Rewards(ABC):
    """What training gets in place of a world's rewards: these, where a subclass says nothing else."""

    gamma: float
    shapes = True
    """Whether anything is added for observations."""

    def spec(self, own: Spec) -> Spec:
        """The interface of a side that gets these."""
        return own

    def own(self, reward: Array) -> Array:
        """What the world's rewards [n, R] become, [n, K]."""
        return reward

    @abstractmethod
    def value(self, inputs: tuple[Array, ...]) -> Array:
        """f of observations, [B]."""
        ...

    def added(self, before: Array, after: Array) -> Array:
        """What f adds for actions between observations with these values, [B]."""
        return np.asarray(self.gamma * after - before)

    def of_results(self, results: Mapping[str, float]) -> float:
        """What an episode's results add."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class RewardedWorld(WrappedWorld):
    """A world with other rewards."""

    @abstractmethod
    def rewards(self, spec: Spec) -> Rewards:
        """Raises `BadRequest` for what a world with this spec does not have."""
        ...

    @property
    def sides(self) -> int:
        return self.world.sides

    def players(self, seed: int) -> tuple[int, ...]:
        return self.world.players(seed)

    def evaluation_world(self) -> World:
        return self.world.evaluation_world()

    def ready(self) -> None:
        self.world.ready()

    def close(self) -> None:
        self.world.close()

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        """Raises `BadRequest` for rewards that the world cannot have."""
        arena = begin(self.world, slots, episodes)
        try:
            rewards = self.rewards(arena.spec)
        except BadRequest:
            arena.close()
            raise
        return around(RewardedArena, arena)(arena, rewards)


class RewardedArena(WrappedArena):
    """The arena of a world, with other rewards.

    Episodes of which the world reports no return have that of its own rewards, as they have without others.
    """

    def __init__(self, arena: Arena, rewards: Rewards) -> None:
        super().__init__(arena)
        self.rewards, self.spec = rewards, rewards.spec(arena.spec)
        self._value = np.zeros(self.slots)  # f of the newest observation of each slot
        self._before = np.zeros(self.slots)  # f of the observation in which a slot acted
        self._acted = np.zeros(self.slots, np.bool_)  # since the arena began or was loaded
        self._in_flight = np.zeros(self.slots, np.bool_)  # the outcome of the last action was not received
        self._reward = np.zeros((self.slots, len(self.spec.rewards)), np.float32)
        self._own = np.zeros((self.slots, len(arena.spec.rewards)))  # the world's rewards in the episode of each slot
        self._return = np.zeros(self.slots)  # of the last episode of each slot, by these

    def recv(self) -> Decisions:
        decisions = self.arena.recv()
        rows = decisions.slots
        self._reward[rows] = self.rewards.own(decisions.reward[rows])
        acted = self._acted.copy()
        acted[decisions.failed] = False
        self._add_own(decisions)
        self._in_flight[rows] = False
        if self.rewards.shapes:
            self._value[rows] = self.rewards.value(decisions.inputs)[rows]
            new = rows[acted[rows]]
            self._reward[new, 0] += self.rewards.added(self._before, self._after(decisions))[new]
        told = [(slot, {"return": float(self._return[slot]), **results}) for slot, results in decisions.results]
        for slot, results in told:
            if acted[slot]:
                self._reward[slot, 0] += self.rewards.of_results(results)
        return replace(decisions, reward=self._reward, results=told)

    def _add_own(self, decisions: Decisions) -> None:
        """Add up the world's own rewards; an ended episode leaves its return, and the slot begins the next one."""
        new = decisions.slots[self._in_flight[decisions.slots]]
        self._own[new] += decisions.reward[new]
        self._own[decisions.failed] = 0
        over = new[decisions.terminated[new] | decisions.truncated[new]]
        self._return[over] = [sum(own) for own in self._own[over].tolist()]
        self._own[over] = 0

    def _after(self, decisions: Decisions) -> Array:
        """f(s') of the last action of each slot, [B]."""
        after = np.where(decisions.terminated, 0.0, self._value)
        cut = decisions.truncated & ~decisions.terminated
        return np.where(cut, self.rewards.value(decisions.final), after) if cut.any() else after

    def send(self, slots: Array, actions: Array) -> None:
        self._before[slots] = self._value[slots]
        self._acted[slots] = self._in_flight[slots] = True
        self.arena.send(slots, actions)

    def state_dict(self) -> StateDict:
        """With what actions in flight began from. f of the present observations follows from these."""
        return {
            "within": self.arena.state_dict(),
            "rewarded": {"before": self._before.copy(), "in_flight": self._in_flight.copy(), "own": self._own.copy()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.arena.load_state_dict(state.get("within", state))  # in runs of older versions the two were one
        own = state.get("rewarded", {"before": self._before, "in_flight": False})  # missing in runs of older versions
        self._before[:], self._in_flight[:] = own["before"], own["in_flight"]
        self._acted[:] = self._in_flight
        self._own[:] = own.get("own", 0.0)  # likewise


def flat(inputs: tuple[Array, ...]) -> Array:
    """All numbers of observations side by side, float64 [B, D]."""
    return np.concatenate([x.reshape(len(x), -1).astype(np.float64) for x in inputs], 1)
