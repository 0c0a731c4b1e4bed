"""All acting is in inference mode, has the bits of acting under no_grad, and autograd can learn from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from rl_toys import Game, GameWorld, Pushing, Wandering, episodes
from torch import Tensor

from evorl.mdp.core import World
from evorl.mdp.pong import Pong
from evorl.nets.distributions import noise_size
from evorl.nets.policy import Net
from evorl.rl import stacked_policies
from evorl.rl.actor import Actor, Player
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.core import Decision, Played
from evorl.rl.evaluation import play_episodes
from evorl.rl.films import film
from evorl.rl.policy_gradient import PolicyGradient
from evorl.rl.ppo import PPO
from evorl.util.seed import Episodes

torch.set_num_threads(1)


def learner_of(world: World, lstm: int, normalize: bool = True) -> PolicyGradient:
    arena = world.arena(world.sides, Episodes(0))
    arena.close()
    hyper = PPO(net=Net(lstm=lstm, hidden=(8,)), normalize_inputs=normalize, passes=2)
    return hyper.learner(arena.spec, 0, torch.device("cpu"))


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[Decision | Played]:
    """Everything that any learner decides from now on."""
    made: list[Decision | Played] = []

    def noting(decide: Callable[..., Decision | Played]) -> Callable[..., Decision | Played]:
        def noted(self: PolicyGradient, *given: Any) -> Decision | Played:
            made.append(decide(self, *given))
            return made[-1]

        return noted

    for name in ("act", "play"):
        monkeypatch.setattr(PolicyGradient, name, noting(getattr(PolicyGradient, name)))
    return made


def rollouts(game: type[Game], lstm: int, order: int | None) -> None:
    world = GameWorld(game=game, order=order)
    learner = learner_of(world, lstm)
    batches(learner, world, 2)


def evaluations(game: type[Game], lstm: int, order: int | None) -> None:
    world = GameWorld(game=game, order=order)
    play_episodes(learner_of(world, lstm), world, 0, 9, deterministic=order is None)


def films(game: type[Game], lstm: int, order: int | None) -> None:
    world = Pong(rounds=1, round_steps=20)
    assert len(list(film(learner_of(world, lstm), world, 0, 0, 1).frames)) > 2


@pytest.mark.slow_cases(
    "rollouts-8-lockstep",
    "films-0-some slots",
    "evaluations-0-some slots",
    "rollouts-0-some slots",
    "evaluations-8-lockstep",
    "films-8-lockstep",
)
@pytest.mark.parametrize("order", [None, 1], ids=["lockstep", "some slots"])
@pytest.mark.parametrize("lstm", [0, 8])
@pytest.mark.parametrize("acting", [rollouts, evaluations, films])
def test_acting_is_in_inference_mode(
    acting: Callable[[type[Game], int, int | None], None],
    lstm: int,
    order: int | None,
    decisions: list[Decision | Played],
) -> None:
    acting(Wandering, lstm, order)
    assert len(decisions) >= 10
    made = [x for decision in decisions for x in decision if x is not None]
    assert len(made) == sum((4 if isinstance(decision, Decision) else 1) + bool(lstm) for decision in decisions)
    assert all(x.is_inference() for x in made)


def batches(learner: PolicyGradient, world: World, count: int) -> list[Tensor]:
    """Every bit of some batches, of the weights after learning from them, and of the actor's memory."""
    slots, horizon = 5, 9
    arena = world.arena(slots, episodes())
    actor = Actor(arena, learner, 3, 0, PolicyGradientBatch.empty(arena.spec, horizon, slots, learner.hyper.net.lstm))
    out: list[Tensor] = []
    for iteration in range(count):
        actor.collect(iteration)
        values = [getattr(actor.batch, one.name) for one in fields(PolicyGradientBatch)]
        for x in [y for value in values for y in (value if isinstance(value, tuple) else (value,)) if y is not None]:
            assert not x.is_inference()
            out.append(x.clone())
        learner.update(actor.batch, 0, iteration)
        out.append(learner.theta.clone())
    carry = actor.state_dict()["carry"]
    return out if carry is None else [*out, carry]


@pytest.mark.slow_cases(but=("Wandering-8-some slots",))
@pytest.mark.parametrize("order", [None, 1], ids=["lockstep", "some slots"])
@pytest.mark.parametrize("lstm", [0, 8])
@pytest.mark.parametrize("game", [Wandering, Pushing])
def test_it_has_the_bits_of_no_grad(
    game: type[Game], lstm: int, order: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = GameWorld(game=game, order=order)
    inference = batches(learner_of(world, lstm), world, 4)
    evaluated = play_episodes(learner_of(world, lstm), world, 0, 9, deterministic=False)
    monkeypatch.setattr(torch, "inference_mode", lambda mode=True: torch.no_grad() if mode else nullcontext())
    no_grad = batches(learner_of(world, lstm), world, 4)
    assert len(inference) == len(no_grad) > 30
    for a, b in zip(inference, no_grad, strict=True):
        assert not a.is_inference() and torch.equal(a, b)
    assert evaluated == play_episodes(learner_of(world, lstm), world, 0, 9, deterministic=False)


def test_memory_of_inference_mode_is_saved_as_plain_tensors() -> None:
    world = GameWorld(game=Wandering, order=2)
    carry = batches(learner_of(world, 8), world, 3)[-1]
    assert carry.shape == (2, 5, 8) and carry.any()
    carry.zero_()  # writable, unlike a tensor of inference mode


@pytest.mark.parametrize("lstm", [0, 8])
def test_a_crowd_acts_in_inference_mode_too(lstm: int) -> None:
    world = GameWorld(game=Wandering)
    actor = stacked_policies.Actor(Wandering.spec, Net(lstm=lstm, hidden=(8,)))
    many = stacked_policies.StackedPolicies(actor, np.stack([actor.fresh("crowd", n) for n in range(3)]))
    player = Player(world.arena(6, Episodes(0)), many)
    noise = torch.zeros(6, noise_size(Wandering.spec.action))
    for _ in range(5):
        decision = player.decide(noise)
        assert all(x.is_inference() for x in decision if x is not None)
        player.send(player.decisions.slots, decision)
        player.recv()
