"""Short learning: each algorithm on a bandit and a chain, and a task that nobody solves without memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from rl_toys import Bandit, Chain, Game, Games, GameWorld, Memory

from evorl.nets.policy import Net
from evorl.rl.a2c import A2C
from evorl.rl.actor import Actor
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.core import Learner
from evorl.rl.evaluation import evaluate_policy
from evorl.rl.ppo import PPO
from evorl.rl.reinforce import Reinforce
from evorl.util.seed import Episodes, uniform

torch.set_num_threads(1)

NET = Net(hidden=(16,))
PPO_ = PPO(slots=16, horizon=16, minibatch=64, lr=1e-2, net=NET)
A2C_ = A2C(slots=16, horizon=8, lr=1e-2, net=NET)
REINFORCE = Reinforce(slots=16, horizon=15, lr=1e-2, net=NET)


def trained(game: type[Game], hyper: Any, iterations: int, seed: int = 0) -> Learner:
    learner: Learner = hyper.learner(game.spec, seed, torch.device("cpu"))
    batch = PolicyGradientBatch.empty(game.spec, hyper.horizon, hyper.slots, hyper.net.lstm)
    actor = Actor(Games(game, hyper.slots, Episodes(seed)), learner, seed, 0, batch)
    for iteration in range(iterations):
        cost, _ = actor.collect(iteration)
        learner.update(batch, iteration * cost, iteration)
    return learner


def mean_returns(game: type[Game], learner: Learner) -> tuple[float, float]:
    """Of the deterministic and of the stochastic policy."""
    metrics = evaluate_policy(learner, GameWorld(game=game), 0, 64)
    return metrics["eval/return_mean"], metrics["eval/stochastic_return_mean"]


@pytest.mark.slow_cases(but=("ppo",))
@pytest.mark.parametrize(
    ("hyper", "iterations"), [(PPO_, 12), (A2C_, 80), (REINFORCE, 80)], ids=["ppo", "a2c", "reinforce"]
)
def test_a_contextual_bandit(hyper: Any, iterations: int) -> None:
    """Chance is 1/3."""
    still, drawn = mean_returns(Bandit, trained(Bandit, hyper, iterations))
    assert still == 1.0 and drawn > 0.85


@pytest.mark.slow_cases(but=("a2c",))
@pytest.mark.parametrize(
    ("hyper", "iterations"), [(PPO_, 15), (A2C_, 150), (REINFORCE, 80)], ids=["ppo", "a2c", "reinforce"]
)
def test_a_chain_that_pays_at_its_far_end(hyper: Any, iterations: int) -> None:
    """Always right gives 11; a fair coin about 2; always left 1.5."""
    still, drawn = mean_returns(Chain, trained(Chain, hyper, iterations))
    assert still == pytest.approx(11) and drawn > 8


MEMORY = PPO(
    slots=32, horizon=18, minibatch=144, lr=5e-3, passes=4, gamma=0.95, entropy_coef=0.0, net=replace(NET, lstm=16)
)


@pytest.mark.learn
def test_ppo_remembers_a_cue_with_an_lstm() -> None:
    still, drawn = mean_returns(Memory, trained(Memory, MEMORY, 50))
    assert still > 0.95 and drawn > 0.85


@pytest.mark.slow
def test_without_memory_the_cue_is_a_coin() -> None:
    """The state that asks for the cue is the same in all episodes, so is the mode of a policy of states: it is right
    exactly where the cue happens to agree."""
    still, _ = mean_returns(Memory, trained(Memory, replace(MEMORY, net=NET), 30))
    keys = Episodes(0, "evaluate", evaluation=True)(range(64), 0)
    first = float((uniform(keys, 0) < 0.5).mean())
    assert still in (first, 1 - first)
    assert 0.3 < first < 0.7
