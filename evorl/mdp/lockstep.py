"""An arena whose slots all step together.

An `Engine` advances B episodes at once. `Lockstep` turns it into an `Arena`: it seeds each episode with its own key,
sums returns, and scales and clips rewards. No episode depends on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count
from typing import Protocol

import numpy as np

from evorl.mdp.core import Array, Closes, Decisions, EpisodeEndHook, Spec, StepLimit, StepsTogether, StoppableSlots
from evorl.mdp.decision_arrays import action_format, empty_decisions
from evorl.util.seed import Episodes, seed31
from evorl.util.types import StateDict


class Engine(Protocol):
    """B episodes that step together. `step` and `reset` write ``inputs`` and ``legal``; the other fields describe the
    last step. The spec is final after the first reset.

    ``broken`` holds the slots whose episode failed in the last step and must start again with the same seed. Their rows
    have no reward and no end.
    """

    inputs: tuple[Array, ...]  # each [B, ...]
    reward: Array  # float64 [B], or one number for all rows
    terminated: Array  # bool [B]
    truncated: Array  # bool [B], never together with terminated
    lengths: Array  # int64 [B]: environment steps since the reset
    cost: int  # environment steps of the last step
    broken: set[int]

    @property
    def spec(self) -> Spec: ...

    @property
    def legal(self) -> Array | None: ...  # bool [B, L]

    def step(self, actions: Array) -> None: ...

    def reset(self, slots: Array, seeds: list[int]) -> None: ...

    def stop_slot(self, slot: int) -> None:
        """Keep the slot's row unchanged until its next reset, if that saves time."""
        ...

    def render(self, slot: int) -> Array | None: ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...

    def close(self) -> None: ...


class Lockstep(EpisodeEndHook, StepLimit, StoppableSlots, StepsTogether, Closes):
    """The `Arena` of an engine.

    The learner receives rewards times ``scale``, then clipped. The results of an episode are its raw "return" and
    its "length" in environment steps. A broken episode has no results, and its last decision none either
    (`Decisions.failed`).
    """

    sides = 1

    def __init__(
        self,
        engine: Engine,
        slots: int,
        episodes: Episodes,
        scale: float = 1.0,
        clip: tuple[float, float] | None = None,
        results: Callable[[int], Mapping[str, float]] = lambda slot: {},
    ) -> None:
        """``results`` returns further results of a slot's episode, once it has ended."""
        self.slots = slots
        self._results = results
        self._engine = engine
        self._episodes = episodes
        self._scale = scale
        self._clip = clip
        self._all_slots = np.arange(slots)
        dtype, width = action_format(engine.spec.action)
        self._actions = np.zeros((slots, width), dtype)  # of the slots that are answered one part after the other
        self._answered = np.zeros(slots, np.bool_)
        self._partly = False  # some are answered
        self._count(np.zeros(slots, np.int64), np.zeros(slots))
        engine.reset(self._all_slots, self._seed)
        self.spec = engine.spec
        self._show()

    def _count(self, episode: Array, returns: Array) -> None:
        """Set the episode numbers [B] and the returns so far [B]."""
        self._episode = episode
        self._returns = returns
        self._seeds = _episode_seeds(self._episodes, episode)
        self._seed = [next(seeds) for seeds in self._seeds]

    def _show(self) -> None:
        """Show the engine's states; no decision has been made yet."""
        shown, engine = empty_decisions(self.spec, self.slots), self._engine
        self._decisions = replace(shown, slots=self._all_slots, inputs=engine.inputs, legal=engine.legal)

    def recv(self) -> Decisions:
        """Raises ValueError if some slots were answered and others not."""
        if self._partly:
            raise ValueError(f"all {self.slots} slots of a lockstep arena must be answered before the next recv")
        return self._decisions

    def send(self, slots: Array, actions: Array) -> None:
        if len(slots) == self.slots:
            return self._step(actions)
        self._actions[slots], self._answered[slots] = actions, True
        self._partly = not self._answered.all()
        if not self._partly:
            self._answered[:] = False
            self._step(self._actions)

    def _step(self, actions: Array) -> None:
        engine, decisions = self._engine, self._decisions
        engine.step(actions)
        self._returns += engine.reward
        decisions.reward[:, 0] = learner_reward(self._scale, self._clip, engine.reward)
        decisions.terminated, decisions.truncated = engine.terminated, engine.truncated
        decisions.cost = engine.cost
        decisions.results, decisions.failed = [], sorted(engine.broken)
        if self.step_limit is not None:
            self._cut(self.step_limit)
        ended = (engine.terminated | engine.truncated).nonzero()[0]
        if ended.size:
            self._end(ended)
        if ended.size or engine.broken:
            failed = np.array(decisions.failed, np.int64)
            self._begin_episodes(np.union1d(ended, failed) if failed.size else ended)

    def _cut(self, limit: int) -> None:
        engine = self._engine
        late = (engine.lengths >= limit) & ~(engine.terminated | engine.truncated)
        if late.any():
            engine.truncated[late] = True
            self.cut += tuple((slot, int(self._episode[slot])) for slot in late.nonzero()[0].tolist())

    def _end(self, ended: Array) -> None:
        self._notify_episode_end()
        engine, decisions = self._engine, self._decisions
        for final, shown in zip(decisions.final, engine.inputs, strict=True):
            final[ended] = shown[ended]
        if decisions.final_legal is not None and engine.legal is not None:
            decisions.final_legal[ended] = engine.legal[ended]
        for slot in ended.tolist():
            result = {"return": float(self._returns[slot]), "length": float(engine.lengths[slot])}
            decisions.results.append((slot, {**result, **self._results(slot)}))
            self._episode[slot] += 1
            self._seed[slot] = next(self._seeds[slot])

    def _begin_episodes(self, slots: Array) -> None:
        """Start the next episode of each slot that ended one; a broken episode starts again."""
        self._returns[slots] = 0.0
        self._engine.reset(slots, [self._seed[slot] for slot in slots.tolist()])

    def stop_slot(self, slot: int) -> None:
        self._engine.stop_slot(slot)

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
        self._answered[:], self._partly = False, False
        self._count(np.array(state["episode"]), np.array(state["returns"]))
        self._show()

    def close(self) -> None:
        self._engine.close()


def learner_reward(scale: float, clip: tuple[float, float] | None, reward: Array) -> Array:
    """Return the scaled and clipped reward that the learner receives."""
    if scale != 1.0:
        reward = reward * scale
    return reward if clip is None else reward.clip(*clip)


def _episode_seeds(episodes: Episodes, first: Array, ahead: int = 64) -> list[Iterator[int]]:
    """Return an iterator of episode seeds per slot, from number ``first`` [B] on; hashes ``ahead`` keys at a time."""

    def later(slot: int, n: int) -> Iterator[int]:
        for begin in count(n, ahead):
            yield from map(seed31, episodes(slot, np.arange(begin, begin + ahead)))

    near = episodes(np.arange(len(first))[:, None], first[:, None] + np.arange(ahead))
    return [chain(map(seed31, keys), later(slot, int(first[slot]) + ahead)) for slot, keys in enumerate(near)]
