"""Whatever plays or learns for long says so all the time, or its worker counts as hung (`evorl.util.heartbeat`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from rl_toys import Games, GameWorld, Scripted, Wandering, collected_from, episodes

from evorl.cluster.processes import Processes
from evorl.mdp.begin import begin
from evorl.mdp.random_play import result_names
from evorl.mdp.shaped import scales
from evorl.nets.policy import Net
from evorl.rl.dqn import DQN
from evorl.rl.evaluation import EvaluationNoise, play_episodes
from evorl.rl.ppo import PPO
from evorl.rl.recorded_episodes import record_episodes
from evorl.rl.sampler import Sampler
from evorl.training.train import spec

WORLD = GameWorld(game=Wandering)
HYPER = PPO(net=Net(hidden=(4,)), slots=2, horizon=40, members=1, minibatch=16)


def learner() -> Any:
    return HYPER.learner(spec(WORLD), 0, torch.device("cpu"))


def collect() -> None:
    Sampler(WORLD, HYPER, 0, torch.device("cpu"), 0).collect(learner().weights(), 0)


def record() -> None:
    arena = Games(Wandering, 40, episodes())
    record_episodes(arena, learner(), EvaluationNoise(arena, 0, deterministic=False))


def skip() -> None:
    begin(GameWorld(game=Wandering, frame_skip=3), 2, episodes()).recv()


@pytest.mark.parametrize(
    ("play", "rounds"),
    [
        (collect, 40),
        (lambda: play_episodes(learner(), WORLD, 0, 100, deterministic=False), 4),
        (record, 2),
        (skip, 1),
        (lambda: scales(WORLD), 100),
        (lambda: result_names(WORLD), 1),
    ],
    ids=["collect", "evaluate", "record", "frame skip", "scales", "result names"],
)
def test_what_plays_sends_a_heartbeat_in_each_round(
    play: Callable[[], None], rounds: int, beats: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    received, recv = list[int](), Games.recv

    def watched(self: Games) -> Any:
        received.append(len(beats))
        return recv(self)

    monkeypatch.setattr(Games, "recv", watched)
    play()
    assert len(received) >= rounds
    assert all(before < after for before, after in zip([0, *received], received, strict=False))


@pytest.mark.parametrize(
    "hyper",
    [HYPER, DQN(net=Net(hidden=(4,)), slots=2, horizon=40, members=1, warm_up=8, batch=8, capacity=800)],
    ids=["ppo", "dqn"],
)
def test_what_learns_sends_heartbeats(hyper: Any, beats: list[int]) -> None:
    trained, actor = collected_from(Scripted, hyper, 1)
    actor.collect(1)
    beats.clear()
    trained.update(actor.batch, actor.batch.done.numel(), 1)
    assert beats


class Slow(Scripted):
    ends = ("." * 50,)

    def step(self, action: Any) -> Any:
        time.sleep(0.05)
        return super().step(action)


@dataclass
class Slowly:
    """Makes samplers whose fragment takes longer than the deadline."""

    hyper: PPO

    def __call__(self, index: int) -> Sampler:
        return Sampler(GameWorld(game=Slow), self.hyper, 0, torch.device("cpu"), index)


@pytest.mark.fault
def test_a_fragment_may_take_longer_than_the_deadline_of_workers() -> None:
    hyper = PPO(net=Net(hidden=(4,)), slots=1, horizon=60, members=1, minibatch=16)
    group: Any = Processes(workers=1, deadline_s=1.0).spawn(Slowly(hyper), 1)
    try:
        weights = hyper.learner(spec(GameWorld(game=Slow)), 0, torch.device("cpu")).weights()
        assert group.all("collect", weights, 0)[0]["cost"] == 60
        assert group.pool.replaced == 0
    finally:
        group.close()
