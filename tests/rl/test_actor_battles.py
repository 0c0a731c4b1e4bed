"""Worlds written as battles give the batches that the same world in lockstep gives, at whatever speed each runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from harness import Alone
from rl_toys import Games, Wandering, episodes

from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Arena, Array, Spec, State, Step
from evorl.nets.policy import Net
from evorl.rl.actor import Actor
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.evaluation import play_episodes
from evorl.rl.ppo import PPO

torch.set_num_threads(1)


class Wanderer:
    """The only side of a battle."""

    def __init__(self, key: int) -> None:
        self.game = Wandering()
        self.game.begin(0, key)

    @property
    def state(self) -> State:
        return self.game.state()

    async def __call__(self, action: Array) -> Step:
        return self.game.step(action)

    def result(self) -> Mapping[str, float]:
        return self.game.result()


@dataclass(frozen=True, kw_only=True)
class Walks(BattleWorld):
    @property
    def spec(self) -> Spec:
        return Wandering.spec

    def reset(self, *players: int, seed: int) -> Alone:
        return Alone(Wanderer(seed))


def played(arena: Arena, lstm: int) -> list[Any]:
    """Three iterations of play and learning: batches, episodes, and the weights at the end."""
    learner = PPO(net=Net(lstm=lstm, hidden=(8,))).learner(arena.spec, 0, torch.device("cpu"))
    actor = Actor(arena, learner, 0, 0, PolicyGradientBatch.empty(arena.spec, 6, arena.slots, lstm))
    out: list[Any] = []
    for iteration in range(3):
        cost, ended = actor.collect(iteration)
        out += [cost, ended, actor.batch.inputs[1].clone(), actor.batch.reward.clone(), actor.batch.final_value.clone()]
        learner.update(actor.batch, 0, iteration)
    arena.close()
    return [*out, learner.theta]


@pytest.mark.slow_cases("0-delay_ms1", "5-None")
@pytest.mark.parametrize("delay_ms", [None, (0.0, 1.0)])
@pytest.mark.parametrize("lstm", [0, 5])
def test_battles_give_the_batches_of_lockstep(lstm: int, delay_ms: tuple[float, float] | None) -> None:
    want = played(Games(Wandering, 6, episodes()), lstm)
    got = played(Walks(delay_ms=delay_ms).arena(6, episodes()), lstm)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b


def test_a_restored_actor_of_battles_goes_on_exactly() -> None:
    learner = PPO(net=Net(lstm=4)).learner(Wandering.spec, 0, torch.device("cpu"))

    def fresh() -> Actor:
        return Actor(Walks().arena(4, episodes()), learner, 0, 0, PolicyGradientBatch.empty(Wandering.spec, 7, 4, 4))

    actor, other = fresh(), fresh()
    actor.collect(0)
    state = actor.state_dict()
    outcome = actor.collect(1)
    other.load_state_dict(state)
    assert other.collect(1) == outcome
    for name in ("start", "action", "log_prob", "value", "final_value", "reward", "done", "carry"):
        assert torch.equal(getattr(other.batch, name), getattr(actor.batch, name)), name
    for one in (actor, other):
        one.player.arena.close()


def test_evaluating_battles_at_any_speed_gives_the_same_episodes() -> None:
    learner = PPO().learner(Wandering.spec, 0, torch.device("cpu"))
    quick = play_episodes(learner, Walks(), 0, 6, deterministic=False)
    assert play_episodes(learner, Walks(delay_ms=(0.0, 1.0)), 0, 6, deterministic=False) == quick
