"""Training critics and actors apart from each other, for evolution with a shared critic.

Both are pure functions of what they are given: the critics before, the actor, what of the replay may be read, the
number of gradient steps, and a name for the random draws. So a job can run in any process, and again after a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from evorl.rl.core import Metrics
from evorl.rl.off_policy import CHUNK, OffPolicy, OffPolicyHyper, Reading, finite_means
from evorl.util.schedule import value as scheduled

Step = Callable[[Tensor, list[Tensor]], dict[str, Tensor]]
AnyLearner = OffPolicy[OffPolicyHyper]


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of a critic's state, for a message."""
    return {name: x.cpu().clone() for name, x in tensors.items()}


def load_critic(learner: AnyLearner, state: Mapping[str, Any]) -> None:
    """Take over a `OffPolicy.critic_state`, or the part of it that is an actor's `OffPolicy.guide`."""
    mine = learner.critic_state()
    for name, x in state.items():
        mine[name].copy_(torch.as_tensor(x))


def train_critic(
    learner: AnyLearner, target_policy: Tensor, reading: Reading, first: int, steps: int, chain: int, step: int
) -> Metrics:
    """Take gradient steps of the learner's critics with an actor [D] as their target policy.

    ``first``: steps that this ``chain`` of critics has taken before. ``step``: environment steps, for the schedules.
    Raises `NotFinite`.
    """
    learner.lr.fill_(scheduled(learner.hyper.lr, step))
    learner.set_target_policy(target_policy)
    return _steps(learner, learner.critic_step, reading, first, steps, True, "critic", chain)


def train_actor(
    learner: AnyLearner, theta: Tensor, reading: Reading, steps: int, individual: int, step: int
) -> tuple[Tensor, Metrics]:
    """Take gradient steps of an actor [D] with a new optimiser; return it, and the means of their statistics.

    ``individual`` names its random draws. ``step``: environment steps, for the schedules. Raises `NotFinite`.
    """
    learner.lr.fill_(scheduled(learner.hyper.lr, step))
    learner.theta.copy_(theta)
    for x in learner.adam.values():
        x.zero_()
    metrics = _steps(learner, learner.actor_step, reading, 0, steps, learner.actor_noise, "actor", individual)
    return learner.theta.clone(), metrics


def _steps(
    learner: AnyLearner, take: Step, reading: Reading, first: int, steps: int, noisy: bool, *words: int | str
) -> Metrics:
    found: dict[str, list[Tensor]] = {}
    for begin in range(first, first + steps, CHUNK):
        count = min(CHUNK, first + steps - begin)
        columns = learner.minibatches(reading, begin, count, *words)
        noise = learner.draw_noise(begin, count, *words) if noisy else torch.zeros(count, 0)
        for i in range(count):
            for name, x in take(noise[i], [x[i] for x in columns]).items():
                found.setdefault(name, []).append(x)
    return finite_means(found, first + steps)
