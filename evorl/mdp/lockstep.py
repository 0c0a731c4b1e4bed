"""An arena whose slots all step together.

An `Engine` advances B episodes at once and knows nothing of keys, returns or
scaled rewards; `Lockstep` turns it into an `Arena`: it gives each ended slot the
key of its own next episode, so no episode depends on any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, count
from typing import Protocol

import numpy as np

from evorl.mdp.core import Array, Decisions, Filmed, Resting, Spec
from evorl.mdp.rows import blank
from evorl.util.seed import Episodes, seed31
from evorl.util.types import StateDict


class Engine(Protocol):
    """B episodes that step together. `step` and `reset` write the rows of ``inputs``; the rest describes the last step.

    ``broken`` holds the slots whose episode failed and is to begin again under the same
    seed; such a row is truncated, and its input is the last one seen.
    """

    spec: Spec
    inputs: tuple[Array, ...]  # each [B, ...]
    reward: Array  # float64 [B], or one number for all rows
    terminated: Array  # bool [B]
    truncated: Array  # bool [B], never together with terminated
    lengths: Array  # int64 [B]: environment steps since the reset
    cost: int  # environment steps of the last step
    broken: set[int]

    def step(self, actions: Array) -> None: ...

    def reset(self, slots: Array, seeds: list[int]) -> None: ...

    def rest(self, slot: int) -> None:
        """Leave the row of a slot that is needed no more as it is, until a reset, where that spares something."""
        ...

    def render(self, slot: int) -> Array | None: ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...

    def close(self) -> None: ...


class Lockstep(Filmed, Resting):
    """The `Arena` of an engine.

    The learner sees rewards times ``scale``, then clipped; the results of an episode are its
    raw "return" and its "length" in environment steps. A broken episode has no results.
    """

    sides = 1

    def __init__(
        self,
        engine: Engine,
        slots: int,
        episodes: Episodes,
        scale: float = 1.0,
        clip: tuple[float, float] | None = None,
    ) -> None:
        self.spec = engine.spec
        self.slots = slots
        self._engine = engine
        self._episodes = episodes
        self._scale = scale
        self._clip = clip
        self._everyone = np.arange(slots)
        self._begin(np.zeros(slots, np.int64), np.zeros(slots))
        engine.reset(self._everyone, self._seed)

    def _begin(self, episode: Array, returns: Array) -> None:
        """Stand at the given episode numbers [B] with the returns so far [B], nothing decided yet."""
        self._episode = episode
        self._returns = returns
        self._seeds = _seeds(self._episodes, episode)
        self._seed = [next(seeds) for seeds in self._seeds]
        self._decisions = replace(blank(self.spec, self.slots), slots=self._everyone, inputs=self._engine.inputs)

    def recv(self) -> Decisions:
        return self._decisions

    def send(self, slots: Array, actions: Array) -> None:
        if len(slots) != self.slots:
            raise ValueError(f"a lockstep arena takes the actions of all {self.slots} slots at once, got {len(slots)}")
        engine, decisions = self._engine, self._decisions
        engine.step(actions)
        self._returns += engine.reward
        decisions.reward[:, 0] = shaped(self._scale, self._clip, engine.reward)
        decisions.terminated, decisions.truncated = engine.terminated, engine.truncated
        decisions.cost = engine.cost
        decisions.results = []
        ended = (engine.terminated | engine.truncated).nonzero()[0]
        if ended.size:
            self._restart(ended)

    def _restart(self, ended: Array) -> None:
        """Begin the next episode of each ended slot; a broken one begins again."""
        self._ended()
        engine, decisions = self._engine, self._decisions
        for final, now in zip(decisions.final, engine.inputs, strict=True):
            final[ended] = now[ended]
        for slot in ended.tolist():
            if slot not in engine.broken:
                result = {"return": float(self._returns[slot]), "length": float(engine.lengths[slot])}
                decisions.results.append((slot, result))
                self._episode[slot] += 1
                self._seed[slot] = next(self._seeds[slot])
        self._returns[ended] = 0.0
        engine.reset(ended, [self._seed[slot] for slot in ended.tolist()])

    def rest(self, slot: int) -> None:
        self._engine.rest(slot)

    def render(self, slot: int = 0) -> Array | None:
        return self._engine.render(slot)

    def state_dict(self) -> StateDict:
        return {
            "episode": self._episode.copy(),
            "returns": self._returns.copy(),
            "engine": self._engine.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Raises ValueError for a state of another number of slots."""
        if len(state["episode"]) != self.slots:
            raise ValueError(f"the state is of {len(state['episode'])} slots, the arena has {self.slots}")
        self._engine.load_state_dict(state["engine"])
        self._begin(np.array(state["episode"]), np.array(state["returns"]))

    def close(self) -> None:
        self._engine.close()


def shaped(scale: float, clip: tuple[float, float] | None, reward: Array) -> Array:
    """What the learner sees of a raw reward."""
    if scale != 1.0:
        reward = reward * scale
    return reward if clip is None else reward.clip(*clip)


def _seeds(episodes: Episodes, first: Array, ahead: int = 64) -> list[Iterator[int]]:
    """The seeds of each slot's episodes from its number [B] on, hashed many at a time: one costs as much as 64."""

    def later(slot: int, n: int) -> Iterator[int]:
        for begin in count(n, ahead):
            yield from map(seed31, episodes(slot, np.arange(begin, begin + ahead)))

    near = episodes(np.arange(len(first))[:, None], first[:, None] + np.arange(ahead))
    return [chain(map(seed31, keys), later(slot, int(first[slot]) + ahead)) for slot, keys in enumerate(near)]
