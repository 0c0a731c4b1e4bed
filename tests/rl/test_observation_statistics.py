"""Statistics of what policies see while they play, against all rows at once; and many policies that share them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rl_toys import Game, Games, Pushing, Wandering

from evorl.mdp.core import Array, Discrete, Input, Spec
from evorl.nets.distributions import noise_size
from evorl.nets.encoders import ENCODERS
from evorl.nets.policy import Net
from evorl.nets.statistics import Moments
from evorl.rl import observation_statistics
from evorl.rl.evaluation import EvaluationNoise, play_slots
from evorl.rl.observation_statistics import ObservationStatistics
from evorl.rl.ppo import PPO
from evorl.rl.stacked_policies import Actor, StackedPolicies
from evorl.util.seed import Episodes, generator

torch.set_num_threads(1)

NUMBERS = [2, 0, 3, 1, 2]


class Noted(Games):
    """Notes the inputs that slots decide on in the episodes that count."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.noted: list[list[Array]] = []

    def send(self, slots: Array, actions: Array) -> None:
        counted = [slot for slot in slots.tolist() if self.numbers[slot] < NUMBERS[slot]]
        self.noted += [[x[slot].copy() for x in self.rows.inputs] for slot in counted]
        super().send(slots, actions)


def watched(order: int | None, whiten: bool) -> tuple[Moments, list[list[Array]]]:
    arena = Noted(Wandering, len(NUMBERS), Episodes(3), order)
    learner = PPO(net=Net(hidden=(8,))).learner(arena.spec, 0, torch.device("cpu"))
    seen = ObservationStatistics(Moments(arena.spec.inputs, whiten), arena.slots)
    play_slots(arena, learner, EvaluationNoise(arena, 0, deterministic=True), NUMBERS, seen)
    return seen.moments, arena.noted


@pytest.mark.slow_cases("64-True", "2-False")
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("block", [2, 64])
def test_every_input_that_counts_is_seen_once_in_whatever_order(
    whiten: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation_statistics, "BLOCK", block)
    moments, noted = watched(None, whiten)
    assert len(noted) > 4 * 2
    for i, running in moments.running.items():
        rows = np.array([inputs[i] for inputs in noted], np.float64)
        centred = rows - rows.mean(0)
        want = centred.T @ centred if whiten else (centred**2).sum(0)
        assert running.count == len(rows)
        torch.testing.assert_close(running.mean, torch.from_numpy(rows.mean(0)), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(running.m2, torch.from_numpy(want), rtol=1e-9, atol=1e-9)
    for order in (1, 2, 3):
        other, _ = watched(order, whiten)
        for i, running in moments.running.items():
            assert torch.equal(other.running[i].mean, running.mean) and torch.equal(other.running[i].m2, running.m2)


def test_a_lockstep_world_needs_one_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation_statistics, "BLOCK", 4)
    merged: list[int] = []
    update = Moments.update
    monkeypatch.setattr(Moments, "update", lambda self, x: merged.append(len(x[0])) or update(self, x))
    seen, inputs = (
        ObservationStatistics(Moments(Pushing.spec.inputs), 3),
        (np.zeros((3, 2), np.float32), np.zeros((3, 3), np.float32)),
    )
    rows, playing = np.arange(3), np.ones(3, bool)
    for _ in range(9):
        seen.see(inputs, rows, playing)
    assert merged == [12, 12]
    playing[1:] = False
    for _ in range(3):
        seen.see(inputs, rows, playing)
    seen.close()
    assert merged == [12, 12, 6]


@pytest.mark.slow_cases(
    "Pushing-net2-True",
    "Wandering-net0-True",
    "Pushing-net1-True",
    "Pushing-net2-whiten",
    "Wandering-net0-whiten",
    "Wandering-net1-whiten",
)
@pytest.mark.parametrize("how", [True, "whiten"])
@pytest.mark.parametrize("net", [Net(hidden=(8,)), Net(hidden=(8,), shared=True), Net(hidden=(8,), lstm=4)])
@pytest.mark.parametrize("game", [Pushing, Wandering])
def test_a_crowd_sees_as_a_learner_with_the_same_statistics(game: type[Game], net: Net, how: Any) -> None:
    spec, draw = game.spec, np.random.default_rng(0)
    learner = PPO(net=net, normalize_inputs=how).learner(spec, 0, torch.device("cpu"))
    learner.moments.update(tuple(torch.from_numpy(draw.normal(3, 2, (40, *x.shape))) for x in spec.inputs))
    actor = Actor(spec, net)
    genome = actor.share(learner.state_dict()["policy"])
    crowd = StackedPolicies(actor, np.stack([genome, genome]), learner.moments)
    inputs = tuple(torch.from_numpy(draw.normal(3, 2, (6, *x.shape)).astype(np.float32)) for x in spec.inputs)
    noise = torch.zeros(6, noise_size(spec.action))
    legal = torch.ones(6, 5, dtype=torch.bool) if spec.masked else None
    start = torch.ones(6, dtype=torch.bool) if net.lstm else None
    want = learner.act(inputs, legal, noise, learner.carry(6), start).action
    got = crowd.act(inputs, legal, noise, crowd.carry(6), start).action
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    blind = StackedPolicies(actor, np.stack([genome, genome])).act(inputs, legal, noise, crowd.carry(6), start).action
    if game is Pushing:
        assert not torch.allclose(blind, want, atol=1e-3)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_crowd_sees_pictures_as_a_learner_does(encoder: str) -> None:
    spec, net = Spec((Input("image", (2, 36, 40), "uint8"),), Discrete(5)), Net(encoder=encoder, hidden=(8,))
    learner, actor = PPO(net=net).learner(spec, 0, torch.device("cpu")), Actor(spec, net)
    genome = actor.share(learner.state_dict()["policy"])
    image = torch.from_numpy(generator("image").integers(0, 256, (6, 2, 36, 40)).astype(np.uint8))
    noise = torch.from_numpy(generator("noise").gumbel(size=(6, 5)).astype(np.float32))
    crowd = StackedPolicies(actor, np.stack([genome, genome]))
    want, got = (one.act((image,), None, noise, None, None).action for one in (learner, crowd))
    assert torch.equal(got, want)


@pytest.mark.parametrize("net", [Net(hidden=(8,)), Net(hidden=(8,), shared=True), Net(hidden=(8,), lstm=4)])
def test_the_share_of_a_whole_policy_is_what_was_put_there(net: Net) -> None:
    policy = PPO(net=net).learner(Pushing.spec, 0, torch.device("cpu")).state_dict()["policy"]
    actor = Actor(Pushing.spec, net)
    genome = np.random.default_rng(1).normal(size=actor.size).astype(np.float32)
    assert np.array_equal(actor.share(actor.whole(genome, policy)), genome)
