"""Tiny worlds written one slot at a time, and the arenas that play them in lockstep or in any order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from evorl.mdp.core import Array, Box, Decisions, Discrete, Input, MultiDiscrete, Spec, State, StateDict, Step, World
from evorl.mdp.decision_arrays import empty_decisions, write_final_state, write_state
from evorl.rl.actor import Actor
from evorl.util.seed import Episodes, generator, uniform


class Broken(Exception):
    """What a game raises in the middle of a step, when it can no more."""


class Game(ABC):
    """One slot's episodes: ``begin`` with a key, then ``step``; all it knows is in plain attributes."""

    spec: ClassVar[Spec]

    def begin(self, slot: int, key: int) -> None:
        self.slot, self.key, self.t = slot, key, 0

    def draw(self, counter: int) -> float:
        return float(uniform(np.array([self.key], np.uint64), counter)[0])

    @abstractmethod
    def state(self) -> State:
        """What is seen now."""

    @abstractmethod
    def step(self, action: Array) -> Step:
        """Act."""

    def result(self) -> dict[str, float]:
        return {}


class Games:
    """An arena of games. One that raises `Broken` starts its episode again.

    Without ``order`` all slots step together; with one, `recv` releases random subsets of
    the answered slots, in an order drawn from it, and rows that do not wait hold garbage."""

    sides = 1

    def __init__(self, game: Callable[[], Game], slots: int, episodes: Episodes, order: int | None = None) -> None:
        self.games = [game() for _ in range(slots)]
        self.spec, self.slots, self.episodes = self.games[0].spec, slots, episodes
        self.order = None if order is None else generator("order", order)
        self.numbers = [0] * slots
        self.rows = empty_decisions(self.spec, slots)
        self.answers: dict[int, Array | None] = dict.fromkeys(range(slots))
        self.closed = False
        for slot in range(slots):
            self._begin(slot)

    def _begin(self, slot: int) -> None:
        self.games[slot].begin(slot, int(self.episodes(slot, self.numbers[slot])))

    def recv(self) -> Decisions:
        ready = sorted(self.answers)
        if self.order is not None:
            ready = sorted(self.order.choice(ready, self.order.integers(1, len(ready) + 1), replace=False).tolist())
        assert ready, "every slot waits"
        assert self.order is not None or len(ready) == self.slots
        self.rows.slots, self.rows.results, self.rows.failed, self.rows.cost = np.array(ready), [], [], 0
        for slot in ready:
            self._advance(slot, self.answers.pop(slot))
        return self.rows

    def _advance(self, slot: int, action: Array | None) -> None:
        game, rows = self.games[slot], self.rows
        try:
            step = None if action is None else game.step(action)
        except Broken:
            step = None
            rows.failed.append(slot)
            self._begin(slot)
        if step is not None:
            rows.cost += step.cost
            rows.reward[slot], rows.terminated[slot], rows.truncated[slot] = step.reward, *step[1:3]
            if step.over:
                write_final_state(rows, slot, game.state())
                rows.results.append((slot, game.result()))
                self.numbers[slot] += 1
                self._begin(slot)
        write_state(rows, slot, game.state())

    def send(self, slots: Array, actions: Array) -> None:
        for slot, action in zip(slots.tolist(), actions, strict=True):
            assert slot not in self.answers
            self.answers[slot] = action.copy()
            self.rows.reward[slot] = self.rows.terminated[slot] = self.rows.truncated[slot] = 0
            if self.order is not None:
                garbage = [self.order.normal(size=x.shape[1:]) for x in self.rows.inputs]
                legal = None if self.rows.legal is None else self.order.random(self.rows.legal.shape[1:]) < 0.5
                write_state(self.rows, slot, State(tuple(garbage), legal))
                write_final_state(self.rows, slot, State(tuple(garbage), legal))

    def render(self, slot: int = 0) -> Array | None:
        return None

    def state_dict(self) -> StateDict:
        assert not self.answers
        return {
            "numbers": list(self.numbers),
            "games": [dict(vars(game)) for game in self.games],
            "order": None if self.order is None else str(self.order.bit_generator.state),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.numbers = list(state["numbers"])
        for game, attributes in zip(self.games, state["games"], strict=True):
            vars(game).clear()
            vars(game).update(attributes)
        self.answers = dict.fromkeys(range(self.slots))
        self.rows.reward[:] = 0
        self.rows.terminated[:] = self.rows.truncated[:] = False

    def close(self) -> None:
        assert not self.closed
        self.closed = True


@dataclass(frozen=True, kw_only=True)
class GameWorld(World):
    game: Any
    order: int | None = None

    def arena(self, slots: int, episodes: Episodes) -> Games:
        return Games(self.game, slots, episodes, self.order)


def episodes(seed: int = 0) -> Episodes:
    return Episodes(seed, "train 0")


# ------------------------------------------------------------------ games for the plumbing


class Scripted(Game):
    """Rewards and ends by a table over the slot's decisions, whatever is done.

    ``ends[slot]`` is a word over ``.`` (goes on), ``X`` (terminates) and ``/`` (truncates), repeated. The state is
    (slot, decision number, t); the rewards of decision n are (n + 1, -slot); every decision costs slot + 1 steps.
    """

    spec = Spec((Input("x", (3,)),), Discrete(2), rewards=("a", "b"))
    ends: ClassVar[tuple[str, ...]] = ("..X../", "/.", "...X", "........")

    def begin(self, slot: int, key: int) -> None:
        super().begin(slot, key)
        self.n = getattr(self, "n", 0)  # decisions of all episodes

    def state(self) -> State:
        return State((np.array([self.slot, self.n, self.t], np.float32),))

    def step(self, action: Array) -> Step:
        word = self.ends[self.slot % len(self.ends)]
        end = word[self.n % len(word)]
        self.n, self.t = self.n + 1, self.t + 1
        return Step(np.array([self.n, -self.slot], np.float32), end == "X", end == "/", self.slot + 1)

    def result(self) -> dict[str, float]:
        return {"score": float(self.slot * 1000 + self.n)}


class Wandering(Game):
    """A state that its actions push about; masks, two inputs, two heads; episodes end at random, either way."""

    spec = Spec((Input("x", (2,)), Input("y", (3,))), MultiDiscrete((3, 2)), rewards=("a", "b"), masked=True)

    def begin(self, slot: int, key: int) -> None:
        super().begin(slot, key)
        self.place = [self.draw(1000), self.draw(1001)]

    def state(self) -> State:
        legal = np.array([self.draw(5 * self.t + k) < 0.6 for k in range(5)])
        legal[[int(self.draw(7) * 3), 3 + int(self.draw(8) * 2)]] = True
        y = np.array([self.draw(2000 + 3 * self.t + k) for k in range(3)], np.float32)
        return State((np.array(self.place, np.float32), y), legal)

    def step(self, action: Array) -> Step:
        assert self.state().legal[[action[0], 3 + action[1]]].all()
        self.t += 1
        self.place = [0.9 * self.place[0] + 0.3 * (action[0] - 1.0), 0.9 * self.place[1] + 0.2 * (action[1] - 0.5)]
        chance = self.draw(4000 + self.t)
        return Step(np.array([self.place[0], action[1]], np.float32), chance < 0.1, 0.1 <= chance < 0.25)

    def result(self) -> dict[str, float]:
        return {"score": float(self.place[0])}


class Pushing(Wandering):
    """The same with real actions in bounds, unmasked, one reward."""

    spec = Spec((Input("x", (2,)), Input("y", (3,))), Box((-1.0, 0.0), (1.0, 4.0)))

    def state(self) -> State:
        return State(super().state().inputs)

    def step(self, action: Array) -> Step:
        assert -1 <= action[0] <= 1 and 0 <= action[1] <= 4
        self.t += 1
        self.place = [float(0.9 * self.place[0] + 0.3 * action[0]), float(0.9 * self.place[1] + 0.2 * action[1])]
        chance = self.draw(4000 + self.t)
        return Step(np.array([self.place[0]], np.float32), chance < 0.1, 0.1 <= chance < 0.25)


# ------------------------------------------------------------------ games to learn


class Bandit(Game):
    """Contextual bandit: of 3 arms, the one that the context names pays 1; an episode is one decision."""

    spec = Spec((Input("context", (3,)),), Discrete(3))

    def state(self) -> State:
        return State((np.eye(3, dtype=np.float32)[int(self.draw(0) * 3)],))

    def step(self, action: Array) -> Step:
        right = (int(self.draw(0) * 3) + 1) % 3
        self.t = 1
        return Step(np.array([float(action[0] == right)], np.float32), terminated=True)


class Chain(Game):
    """Five states in a row, start in the first: left pays 0.1 at once and goes back, the right end pays 1 each time.

    Episodes are truncated after 15 steps: always right gives 11, always left 1.5.
    """

    spec = Spec((Input("place", (5,)),), Discrete(2))

    def begin(self, slot: int, key: int) -> None:
        super().begin(slot, key)
        self.place = 0

    def state(self) -> State:
        return State((np.eye(5, dtype=np.float32)[self.place],))

    def step(self, action: Array) -> Step:
        self.t += 1
        paid = float(self.place == 4) if action[0] == 1 else 0.1
        self.place = min(self.place + 1, 4) if action[0] == 1 else 0
        return Step(np.array([paid], np.float32), truncated=self.t == 15)


class Memory(Game):
    """A cue of +1 or -1 in the first state only; the decision eight steps later must repeat it, for a reward of 1.

    All other states are alike in all episodes, so a policy without memory is right half the time at best.
    """

    spec = Spec((Input("cue", (1,)), Input("clock", (9,))), Discrete(2))

    def state(self) -> State:
        cue = (1.0 if self.draw(0) < 0.5 else -1.0) if self.t == 0 else 0.0
        return State((np.array([cue], np.float32), np.eye(9, dtype=np.float32)[min(self.t, 8)]))

    def step(self, action: Array) -> Step:
        self.t += 1
        right = (self.draw(0) < 0.5) == (action[0] == 1)
        return Step(np.array([float(right and self.t == 9)], np.float32), terminated=self.t == 9)


def collected_from(game: type[Game], hyper: Any, updates: int, seed: int = 3) -> tuple[Any, Actor]:
    """A learner with a replay after so many iterations, and what collects for it."""
    learner, member = (hyper.learner(game.spec, seed, torch.device("cpu")) for _ in range(2))
    arena = Games(game, hyper.slots, Episodes(seed))
    actor = Actor(arena, member, seed, 0, hyper.storage(game.spec, hyper.slots))
    for iteration in range(updates):
        advance(learner, actor, iteration)
    return learner, actor


def advance(learner: Any, actor: Actor, iteration: int) -> None:
    """One iteration of a run: the member gets the weights, the learner its batch."""
    actor.player.learner.load_weights(learner.weights())
    actor.collect(iteration)
    learner.update(actor.batch, iteration * actor.batch.done.numel(), iteration)
