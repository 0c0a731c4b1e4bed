"""Learners with attentive sampling: which states they compare, and what a minibatch depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rl_toys import advance, collected_from
from test_dqn import SMALL as DISCRETE
from test_dqn import Choosing, everything
from test_off_policy import SMALL as BOXED
from test_off_policy import Drift

from evorl.mdp.core import Discrete, Input, Spec
from evorl.nets.policy import Net
from evorl.nets.random_features import RandomFeatures
from evorl.replay.samplers.nearest import NearestTransitions, draw
from evorl.replay.samplers.registry import SequenceSamplers
from evorl.rl.ddpg import DDPG
from evorl.rl.dqn import DQN
from evorl.rl.r2d2 import R2D2
from evorl.rl.replay_learner import Reading
from evorl.rl.sac import SAC
from evorl.rl.td3 import TD3
from evorl.util.seed import generator, key

torch.set_num_threads(1)
CPU = torch.device("cpu")
OPTIONS = SequenceSamplers(attentive=NearestTransitions(candidates=3.0, anneal=200))
ATTENTIVE: dict[str, Any] = {"sampling": "attentive", "replay": OPTIONS}
CORE: dict[str, Any] = {"net": Net(hidden=(8,), lstm=4), "length": 3}
LEARNERS = {
    "td3": (Drift, TD3(**BOXED, **ATTENTIVE)),
    "sac": (Drift, SAC(**BOXED | {"net": Net(hidden=(8,), std="state")}, **ATTENTIVE)),
    "ddpg": (Drift, DDPG(**BOXED, **ATTENTIVE)),
    "dqn": (Choosing, DQN(**DISCRETE, **ATTENTIVE)),
    "r2d2": (Choosing, R2D2(**DISCRETE | CORE, **ATTENTIVE)),
}


def expected(learner: Any, step: int) -> list[int]:
    """The numbers of a gradient step: cosines of observations, one by one."""
    h, replay = learner.hyper, learner.replay
    low, high = replay.oldest(replay.count), replay.count
    wanted = int((3.0 - 2.0 * step / 200) * h.batch)
    drawn = low + draw(generator(key(learner.seed, "replay"), step), high - low, min(wanted, high - low))
    now = replay.states(np.array([high - 1 - step % 12]))[0][0].astype(float)  # of 3 slots, 4 decisions of each
    cosine = []
    for number in drawn.tolist():
        x = replay.states(np.array([number]))[0][0].astype(float)
        cosine.append(float(x @ now / np.sqrt((x @ x) * (now @ now))))
    nearest = sorted(range(len(drawn)), key=lambda i: -cosine[i])[: h.batch]
    return drawn[nearest].tolist()


@pytest.mark.parametrize("name", LEARNERS)
def test_minibatches_are_near_the_states_of_the_newest_decisions(name: str) -> None:
    game, hyper = LEARNERS[name]
    learner, _ = collected_from(game, hyper, 6)
    drawn = learner._numbers(everything(learner), 5, 9).reshape(9, -1)
    for step, row in enumerate(drawn.tolist(), 5):
        assert row == expected(learner, step)
    assert len({tuple(row) for row in drawn.tolist()}) == 9


def test_a_minibatch_depends_on_the_seed_its_purpose_its_step_and_the_number_of_transitions() -> None:
    """Not on the network, on how many are drawn at once, or on what is appended later."""
    game, hyper = LEARNERS["td3"]
    learner, actor = collected_from(game, replace(hyper, warm_up=10_000), 6)
    then = Reading(learner.replay, learner.replay.count, learner.replay.oldest(learner.replay.count))
    before = learner._numbers(then, 3, 4)
    learner.theta.add_(1.0)
    for iteration in range(6, 9):
        advance(learner, actor, iteration)
    assert (learner._numbers(then, 3, 4) == before).all()
    assert (np.concatenate([learner._numbers(then, step, 1) for step in range(3, 7)]) == before).all()
    assert (learner._numbers(then, 3, 4, "actor", 1) != before).any()
    assert (learner._numbers(everything(learner), 3, 4) != before).any()
    learner.seed += 1
    assert (learner._numbers(then, 3, 4) != before).any()


def test_lambda_is_told() -> None:
    learner, actor = collected_from(*LEARNERS["td3"], 5)
    taken = learner.gradient_steps
    actor.collect(5)
    told = learner.update(actor.batch, 0, 5).metrics["replay/candidates"]
    assert told == pytest.approx(3.0 - 2.0 * taken / 200)


def test_pictures_are_compared_by_random_features_that_never_change() -> None:
    spec = Spec((Input("image", (1, 36, 36), "uint8"), Input("x", (2,))), Discrete(2))
    images = torch.randint(0, 256, (5, 1, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images[4] = images[0]
    images[4, 0, :3, :3] = 0
    x = torch.zeros(5, 2)
    first, again, other = (RandomFeatures(spec, Net(), seed, CPU)((images, x)) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert (first[:, -2:] == 0).all() and first.shape[1] > 60
    distance = torch.cdist(first, first)[0]
    assert int(distance[1:].argmin()) == 3, distance  # the picture that differs in a corner only
