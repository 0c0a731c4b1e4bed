"""Discounts count decisions, however many environment steps a decision takes: returns by their definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from evorl.mdp.core import World
from evorl.mdp.duel import Duel
from evorl.mdp.duel.characters import Ground
from evorl.mdp.gymnasium import Gymnasium
from evorl.nets.policy import Net
from evorl.rl.a2c import A2C
from evorl.rl.actor import Actor
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.core import Hyper, Learned
from evorl.rl.ppo import PPO
from evorl.rl.reinforce import Reinforce
from evorl.util.seed import Episodes

torch.set_num_threads(1)

HORIZON = 120
GAMMA = 0.9
WORLDS: dict[str, World] = {
    "duel": Duel(ground=Ground(limit=6.0)),
    "deadly duel": Duel(ground=Ground(storm=2.0, burn=0.5)),
    "frame skip": Gymnasium(id="CartPole-v1", frame_skip=3, time_limit=20),
}
HYPERS: dict[str, Any] = {"ppo": PPO, "a2c": A2C, "reinforce": Reinforce}
NET = Net(hidden=(8,))


class Told(NamedTuple):
    """What the world told of one decision."""

    reward: list[float]  # [R]
    cost: int
    terminated: bool
    truncated: bool


def played(world: World, hyper: Hyper) -> tuple[list[Told], PolicyGradientBatch, Tensor]:
    """The decisions of one slot, the batch that they made, and the critic's targets [T, R] that it is learned from."""
    arena = world.arena(1, Episodes(0))
    told: list[Told] = []
    recv = arena.recv

    def heard() -> Any:
        now = recv()
        told.append(Told(now.reward[0].tolist(), now.cost, bool(now.terminated[0]), bool(now.truncated[0])))
        return now

    arena.recv = heard
    learner: Any = hyper.learner(arena.spec, 0, torch.device("cpu"))
    actor = Actor(arena, learner, 0, 0, PolicyGradientBatch.empty(arena.spec, HORIZON, 1, 0))
    actor.collect(0)
    arena.close()
    targets: list[Tensor] = []
    learner.descend = lambda batch, columns, iteration: (targets.append(columns.target), Learned(0, {}))[1]
    learner.update(actor.batch, 0, 0)
    return told[1:], actor.batch, targets[0]


def returns(told: list[Told], batch: PolicyGradientBatch, lam: float, passed: Callable[[Told], int]) -> Tensor:
    """The critic's targets [T, R]: λ-weighted means of n-step returns, in which ``passed`` says what a decision takes.

    (1-λ) Σ λ^(n-1) G_n + λ^(N-1) G_N, where G_n = Σ γ^t r + γ^t V over what passed before, and the last of N decisions
    ends the episode or the batch.
    """
    out = torch.zeros(len(told), len(told[0].reward))
    for r in range(out.shape[1]):
        for start in range(len(told)):
            steps, total, time = [], 0.0, 0
            for t in range(start, len(told)):
                one = told[t]
                total += GAMMA**time * one.reward[r]
                time += passed(one)
                follows = batch.final_value if one.terminated or one.truncated else batch.value[1:]
                steps.append(total + GAMMA**time * float(follows[t, 0, r]))
                if one.terminated or one.truncated:
                    break
            *before, last = steps
            out[start, r] = (1 - lam) * sum(lam**n * x for n, x in enumerate(before)) + lam ** len(before) * last
    return out


@pytest.mark.slow_cases(
    "duel-a2c-1.0",
    "duel-ppo-1.0",
    "duel-reinforce-1.0",
    "deadly duel-reinforce-1.0",
    "deadly duel-ppo-1.0",
    "deadly duel-a2c-1.0",
)
@pytest.mark.parametrize("lam", [1.0, 0.8])
@pytest.mark.parametrize("kind", HYPERS.values(), ids=HYPERS)
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_a_discount_is_for_a_decision_and_not_for_a_step(world: World, kind: Any, lam: float) -> None:
    told, batch, target = played(world, kind(gamma=GAMMA, lam=lam, net=NET))
    assert len(told) == HORIZON and any(one.terminated or one.truncated for one in told)
    assert max(one.cost for one in told) > 1 and len({one.cost for one in told}) > 1
    assert not batch.final_value[[t for t, one in enumerate(told) if one.terminated]].any()
    torch.testing.assert_close(target, returns(told, batch, lam, lambda one: 1), rtol=1e-4, atol=1e-5)
    by_steps = returns(told, batch, lam, lambda one: one.cost)
    assert (by_steps - target).abs().max() > 0.01  # it would show


def test_corrected_targets_count_decisions_too() -> None:
    told, batch, target = played(WORLDS["duel"], PPO(gamma=GAMMA, lam=1.0, net=NET, correction="vtrace"))
    torch.testing.assert_close(target, returns(told, batch, 1.0, lambda one: 1), rtol=1e-4, atol=1e-4)
