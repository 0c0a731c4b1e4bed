"""A step that failed leaves nothing: batches and replays are those of episodes that were cut before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_toys import Broken, Games, Scripted, episodes
from test_actor import Simple

from evorl.mdp.core import Array, Step, StepsTogether
from evorl.nets.distributions import draw_noise
from evorl.replay.storage import Replay, Shape
from evorl.rl.actor import Actor
from evorl.rl.batch import Batch, PolicyGradientBatch, TransitionBatch
from evorl.rl.core import Decision
from evorl.rl.replay_learner import _fragment
from evorl.util.seed import generator

torch.set_num_threads(1)
GAMMA = np.array([0.9, 0.5])


class Failing(Scripted):
    """A scripted game that fails at some of the tries to act, whatever is done. What has failed has cost nothing."""

    rate = 0.0

    def begin(self, slot: int, key: int) -> None:
        super().begin(slot, key)
        self.tries = getattr(self, "tries", 0)

    def step(self, action: Array) -> Step:
        self.tries += 1
        if generator("fails", self.slot, self.tries).random() < self.rate:
            raise Broken
        return super().step(action)


class Together(Games, StepsTogether):
    """An arena whose slots step together, and are answered in any parts."""


class Kept(dict[str, Any]):
    """A decision that did not fail, and what came of it."""


class Column:
    """One slot, its episodes played by explicit steps: the decisions that a batch or a replay holds."""

    def __init__(self, game: Failing, slot: int, remembers: bool) -> None:
        self.game, self.slot, self.learner = game, slot, Simple(game.spec, remembers)
        self.carry, self.start = self.learner.carry(1), True
        self.kept: list[Kept] = []
        self.ends: list[tuple[Array, bool, torch.Tensor]] = []  # of each batch: the state, and its value
        self.t = self.failures = self.extra = 0
        self.on = False  # the last decision was kept, and its episode goes on
        game.begin(slot, 0)

    def begin(self, iteration: int, noise: Array) -> None:
        self.iteration, self.noise = iteration, noise.copy()
        self.t = self.failures = self.extra = 0

    def decide(self, noise: Array, first: bool) -> Decision:
        begins = None if self.carry is None else torch.tensor([first])
        inputs = (torch.from_numpy(self.game.state().inputs[0])[None],)
        return self.learner.act(inputs, None, torch.from_numpy(noise)[None], self.carry, begins)

    def end(self) -> None:
        if len(self.ends) == self.iteration:
            state = self.game.state().inputs[0]
            self.ends.append((state, self.start, self.decide(self.noise[0], self.start).value[0]))

    def act(self) -> None:
        """The next decision of the batch."""
        state, start = self.game.state().inputs[0], self.start
        before = None if self.carry is None else self.carry[:, 0] * (not start)
        decision = self.decide(self.noise[self.t], start)
        self.carry = decision.carry
        try:
            step = self.game.step(decision.action[0].numpy())
        except Broken:
            if self.on:  # the one before is the last of its episode, cut in this state
                last = self.kept[-1]
                last["linked"] = False
                if last["iteration"] == self.iteration:
                    last.update(done=True, next=state, final_value=decision.value[0])
            self.draw("instead", self.failures)
            self.failures += 1
            self.start, self.on = True, False
            self.game.begin(self.slot, 0)
            return
        one = Kept(
            iteration=self.iteration, t=self.t, state=state, start=start, action=int(decision.action[0, 0]),
            carry=before, log_prob=decision.log_prob[0], value=decision.value[0], reward=step.reward, done=step.over,
            terminated=step.terminated, next=self.game.state().inputs[0], final_value=torch.zeros(2),
            linked=not step.over,
        )  # fmt: skip
        if step.truncated:
            one["final_value"] = self.decide(self.noise[0], False).value[0]
        self.kept.append(one)
        self.t += 1
        self.start, self.on = step.over, not step.over
        if step.over:
            self.game.begin(self.slot, 0)

    def play_on(self) -> None:
        """A decision that belongs to no batch, since other slots are not ready."""
        self.end()
        noise = self.words("play on", self.extra)
        self.extra += 1
        decision = self.decide(noise, self.start)
        self.carry = decision.carry
        self.kept[-1]["linked"] = self.on = False
        try:
            self.start = self.game.step(decision.action[0].numpy()).over
        except Broken:
            self.start = True
        if self.start:
            self.game.begin(self.slot, 0)

    def draw(self, word: str, count: int) -> None:
        self.noise[self.t] = self.words(word, count)

    def words(self, word: str, count: int) -> Array:
        return draw_noise(self.game.spec.action, generator(3, word, 0, self.iteration, self.slot, count), ())


def histories(
    game: type[Failing], slots: int, horizon: int, batches: int, remembers: bool, together: bool
) -> list[Column]:
    """The columns after so many batches. Where slots step together, one that has its decisions plays on."""
    columns = [Column(game(), slot, remembers) for slot in range(slots)]
    for iteration in range(batches):
        noise = draw_noise(game.spec.action, generator(3, "act", 0, iteration), (horizon, slots))
        for column in columns:
            column.begin(iteration, noise[:, column.slot])
        while any(column.t < horizon for column in columns):
            for column, short in [(column, column.t < horizon) for column in columns]:
                if short:
                    column.act()
                elif together:
                    column.play_on()
        for column in columns:
            column.end()
    return columns


def n_step(kept: list[Kept], at: int, steps: int) -> tuple[Array, Array, Array | None]:
    """Discounted rewards of up to ``steps`` decisions from number ``at`` on, the discount of the value that follows,
    and the state that it is of."""
    reward, discount = np.zeros(2), np.ones(2)
    for one in kept[at : at + steps]:
        reward, discount = reward + discount * one["reward"], discount * GAMMA
        if not one["linked"]:
            break
    return reward, discount * (not one["terminated"]), None if one["terminated"] else one["next"]


@settings(max_examples=12, deadline=None)
@given(
    horizon=st.integers(1, 6),
    slots=st.integers(1, 4),
    rate=st.sampled_from([0.0, 0.1, 0.4, 0.8]),
    order=st.none() | st.integers(0, 10**6),
    remembers=st.booleans(),
    replays=st.booleans(),
    resumed=st.integers(0, 2),
)
def test_batches_and_replays_hold_episodes_cut_before_the_failed_step(
    horizon: int, slots: int, rate: float, order: int | None, remembers: bool, replays: bool, resumed: int
) -> None:
    class Game(Failing):
        pass

    Game.rate, batches = rate, 3
    want = histories(Game, slots, horizon, batches, remembers, together=order is None)
    actor = actor_of(Game, slots, horizon, order, remembers, replays)
    replay = Replay(Game.spec, Shape(10 * batches * horizon * slots, slots))
    for iteration in range(batches):
        if iteration == resumed:
            old, actor = actor, actor_of(Game, slots, horizon, order, remembers, replays)
            actor.load_state_dict(old.state_dict())
            kept_rows, replay = replay.state_dict(), Replay(Game.spec, Shape(10 * batches * horizon * slots, slots))
            if kept_rows["count"]:
                replay.load_state_dict(kept_rows)
        actor.collect(iteration)
        for column in want:
            mine = [one for one in column.kept if one["iteration"] == iteration]
            compare(actor.batch, column.slot, mine, column.ends[iteration], remembers)
        if replays:
            replay.append(_fragment(actor.batch))
    if not replays:
        return
    for steps in (1, 3):
        read = replay.read(np.arange(replay.count), replay.count, GAMMA, steps)
        for number in range(replay.count):
            kept = want[number % slots].kept
            reward, discount, following = n_step(kept, number // slots, steps)
            assert read.inputs[0][number].tolist() == kept[number // slots]["state"].tolist()
            np.testing.assert_allclose(read.reward[number], reward, rtol=1e-6)
            np.testing.assert_allclose(read.discount[number], discount, rtol=1e-6)
            if following is not None:
                assert read.next_inputs[0][number].tolist() == following.tolist()


def actor_of(game: type[Failing], slots: int, horizon: int, order: int | None, remembers: bool, replays: bool) -> Actor:
    arena = (Together if order is None else Games)(game, slots, episodes(), order)
    kind = TransitionBatch if replays else PolicyGradientBatch
    batch = kind.empty(arena.spec, horizon, slots, int(remembers))
    learner: Any = Simple(arena.spec, remembers)
    return Actor(arena, learner, 3, 0, batch)


def compare(batch: Batch, slot: int, kept: list[Kept], end: Any, remembers: bool) -> None:
    """The column of a slot in a batch holds what was kept, and then the state that the batch ended in."""
    assert [one["t"] for one in kept] == list(range(len(batch.done)))
    state, start, value = end
    assert batch.inputs[0][:, slot].tolist() == [*(one["state"].tolist() for one in kept), state.tolist()]
    assert batch.start[:, slot].tolist() == [*(one["start"] for one in kept), start]
    assert batch.action[:, slot, 0].tolist() == [one["action"] for one in kept]
    assert batch.reward[:, slot].tolist() == [one["reward"].tolist() for one in kept]
    assert batch.done[:, slot].tolist() == [one["done"] for one in kept]
    if isinstance(batch, PolicyGradientBatch):
        assert batch.log_prob[:, slot].tolist() == [float(one["log_prob"]) for one in kept]
        assert torch.equal(batch.value[:, slot], torch.stack([*(one["value"] for one in kept), value]))
        assert torch.equal(batch.final_value[:, slot], torch.stack([one["final_value"] for one in kept]))
        return
    assert isinstance(batch, TransitionBatch)
    assert batch.terminated[:, slot].tolist() == [one["terminated"] for one in kept]
    if remembers:
        assert batch.carries is not None
        assert torch.equal(batch.carries[:, slot], torch.stack([one["carry"] for one in kept]))
