"""Training critics and actors apart from each other, for evolution with a shared critic.

Both are pure functions of what they are given: the critics before, the actor, what of the replay may be read, the
number of gradient steps, and a name for the random draws. So a job can run in any process, and again after a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evorl.cluster.core import heartbeat
from evorl.nets.trees import unbound
from evorl.ops.adam import Adam
from evorl.rl.core import Metrics, NotFinite, finite_means
from evorl.rl.network_learner import Network
from evorl.rl.off_policy import OffPolicy, OffPolicyHyper
from evorl.rl.replay_learner import CHUNK, Reading
from evorl.util.schedule import value as scheduled

Drawn = tuple[Tensor, Any]  # noise, and a tree of what is read of the replay, of some gradient steps
Draw = Callable[[int, int], Drawn]  # of a number of gradient steps from a first one on
Step = Callable[[Tensor, Any], dict[str, Tensor]]
Statistics = dict[str, list[Tensor]]  # statistics, one of each gradient step
Trained = tuple[Tensor, Metrics]  # an actor [D], and the means of its training's statistics
AnyLearner = OffPolicy[OffPolicyHyper]


def load_critic(learner: AnyLearner, state: Mapping[str, Any]) -> None:
    """Take over a `OffPolicy.critic_state`, or the part of it that is an actor's `OffPolicy.guide`."""
    mine = learner.critic_state()
    for name, x in state.items():
        # a copy: torch warns of arrays that it may not write
        mine[name].copy_(x if isinstance(x, Tensor) else torch.from_numpy(np.array(x)))


def train_critic(
    learner: AnyLearner, target_policy: Tensor, reading: Reading, first: int, steps: int, chain: int, step: int
) -> Metrics:
    """Take gradient steps of the learner's critics with an actor [D] as their target policy.

    ``first``: steps that this ``chain`` of critics has taken before. ``step``: environment steps, for the schedules.
    Raises `NotFinite`.
    """
    learner.lr.fill_(scheduled(learner.hyper.lr, step))
    learner.set_target_policy(target_policy)

    def draw(first: int, count: int) -> Drawn:
        words = ("critic", chain)
        return learner.draw_noise(first, count, *words), learner.minibatches(reading, first, count, *words)

    return finite_means(_steps(learner.critic_step, draw, first, steps, CHUNK), first + steps)


def train_actor(
    learner: AnyLearner, theta: Tensor, reading: Reading, steps: int, individual: int, step: int
) -> Trained:
    """Take gradient steps of an actor [D] with a new optimiser; return it, and the means of their statistics.

    ``individual`` names its random draws. ``step``: environment steps, for the schedules. Raises `NotFinite`.
    """
    draw = partial(_draw_for_actor, learner, reading, individual)
    theta, sums = _follow_critic(learner, theta, draw, steps, step, CHUNK)
    return theta, finite_means(sums, steps)


def train_actors(
    learner: AnyLearner, theta: Tensor, reading: Reading, steps: int, individuals: Sequence[int], step: int
) -> list[Trained | NotFinite]:
    """`train_actor` for each of K actors [K, D], all in the same operations; of one that fails, its error.

    Each has minibatches and noise of its own. It becomes what it would become alone, up to the rounding of products of
    stacked weights, which depends on K.
    """
    if len(individuals) == 1:
        return [_or_error(partial(train_actor, learner, theta[0], reading, steps, individuals[0], step))]
    draws = [partial(_draw_for_actor, learner, reading, individual) for individual in individuals]

    def draw(first: int, count: int) -> Drawn:
        noise, inputs = zip(*(draw(first, count) for draw in draws), strict=True)
        return torch.stack(noise, 1), tuple(torch.stack(x, 1) for x in zip(*inputs, strict=True))

    theta, sums = _follow_critic(learner, theta, draw, steps, step, max(CHUNK // len(draws), 1))
    stacked = {name: torch.stack(x) for name, x in sums.items()}

    def trained(k: int) -> Trained:
        return theta[k], finite_means({name: [x[:, k]] for name, x in stacked.items()}, steps)

    return [_or_error(partial(trained, k)) for k in range(len(theta))]


def _or_error(train: Callable[[], Trained]) -> Trained | NotFinite:
    try:
        return train()
    except NotFinite as error:
        return error


def _follow_critic(
    learner: AnyLearner, theta: Tensor, draw: Draw, steps: int, step: int, chunk: int
) -> tuple[Tensor, Statistics]:
    learner.lr.fill_(scheduled(learner.hyper.lr, step))
    theta = theta.to(learner.device, copy=True)
    actor = Network(theta, Adam.of(theta))
    return theta, _steps(partial(learner.actor_step, actor), draw, 0, steps, chunk)


def _draw_for_actor(learner: AnyLearner, reading: Reading, individual: int, first: int, count: int) -> Drawn:
    words = ("actor", individual)
    noise = learner.draw_noise(first, count, *words) if learner.actor_noise else torch.zeros(count, 0)
    return noise, learner.states(reading, first, count, *words)


def _steps(take: Step, draw: Draw, first: int, steps: int, chunk: int) -> Statistics:
    """Take gradient steps, drawn ``chunk`` at a time; return their statistics."""
    statistics: Statistics = {}
    for begin in range(first, first + steps, chunk):
        heartbeat()
        count = min(chunk, first + steps - begin)
        for noise, minibatch in unbound(draw(begin, count)):
            for name, x in take(noise, minibatch).items():
                statistics.setdefault(name, []).append(x)
    return statistics
