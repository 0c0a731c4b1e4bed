"""The jobs of an evolution with a shared critic: train the critic, train an actor, play.

Each is a pure function of what it names: weights, critic, what of the replay it may read, gradient steps, and the
individual's number, which keys its random draws. So it can run in any process, and again after its process was killed.
The replay lies in shared memory, or follows the driver's on other hosts; no message is sent per gradient step.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from evorl.cluster.core import Future
from evorl.cluster.transport.host import host_id
from evorl.ec.core import Individual, pack, unpack
from evorl.ec.shared_critic import MEAN, TRAINED, SharedCriticEvolution
from evorl.mdp.core import Spec
from evorl.population.critics import arrays
from evorl.population.objectives import result_of_episodes
from evorl.population.results import WITHOUT_RESULT, IndividualResult, failed_result, why
from evorl.replay.shared import Address, SharedReader
from evorl.replay.storage import Shape
from evorl.rl.core import NotFinite
from evorl.rl.evaluation import EvaluationNoise, limited_arena
from evorl.rl.off_policy import OffPolicyHyper
from evorl.rl.recorded_episodes import record_episodes
from evorl.rl.replay_learner import Reading
from evorl.rl.separate_updates import AnyLearner, Trained, load_critic, train_actors, train_critic
from evorl.training.experiment import Experiment
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict

RANDOM = "random"
"""The role of episodes with random actions, which are played before the search begins."""
CRITIC = "critic"
"""The kind of jobs that train a critic."""

Array = NDArray[Any]


class Lifetime(NamedTuple):
    """What happens to individuals: gradient steps on a critic, all together, then episodes, one after another."""

    ids: Sequence[int]
    role: str
    weights: Array  # [K, D]
    random: bool  # their actions are random
    guide: Mapping[str, Any]  # the critic's part that trained individuals follow; empty if they are not trained
    length: int  # of the replay
    oldest: int
    gradient_steps: int  # of each
    step: int  # environment steps at its start, for schedules


class CriticSteps(NamedTuple):
    """Gradient steps of a critic, a share of them for each of its target policies."""

    chain: int  # which critic
    state: Mapping[str, Any]
    targets: Sequence[Array]  # weights [D]
    length: int  # of the replay
    oldest: int
    first: int  # gradient steps that it has taken before
    gradient_steps: int  # for each target policy
    step: int  # environment steps at its start, for schedules


class Worked(NamedTuple):
    """Who did a job, and when, in seconds of the monotonic clock of its host: the wall clock may be set meanwhile."""

    process: int
    began: float
    trained: float  # when training ended
    ended: float
    host: str = ""  # as `host_id` has it

    @property
    def worker(self) -> tuple[str, int]:
        """The process and its host: processes of several hosts may have the same number."""
        return self.host, self.process


class Job(NamedTuple):
    """A job that was sent to a worker."""

    number: int  # in the order of sending
    kind: str  # the role of its individuals, or CRITIC
    individuals: Sequence[Individual]
    task: Lifetime | CriticSteps
    version: int  # of the critic that it uses
    future: Future

    @property
    def reads(self) -> bool:
        """Whether it reads the replay."""
        return self.kind in (CRITIC, TRAINED)


def packed(job: Job) -> StateDict:
    """What a checkpoint holds of a job in flight."""
    return {
        "number": job.number, "kind": job.kind, "individuals": pack(job.individuals), "version": job.version,
        "task": {name: np.stack(x) if name == "targets" else x for name, x in job.task._asdict().items()},
    }  # fmt: skip


def unpacked(state: StateDict) -> tuple[int, str, Sequence[Individual], Lifetime | CriticSteps, int]:
    """Number, kind, individuals, task and version of a job from `packed`."""
    critic = state["kind"] == CRITIC
    task: Lifetime | CriticSteps = CriticSteps(**state["task"]) if critic else Lifetime(**state["task"])
    return state["number"], state["kind"], unpack(state["individuals"]), task, state["version"]


def replay_shape(hyper: OffPolicyHyper) -> Shape:
    """The size of the shared replay; a quarter of its capacity may be appended while a job reads. Raises `BadRequest`
    for one that cannot be shared."""
    if hyper.compress:
        raise BadRequest("workers read a shared replay in place, so it is not compressed", "rl.compress")
    return Shape(hyper.capacity, 1, hyper.capacity // 4)


def check_replay(experiment: Experiment, spec: Spec) -> None:
    """Raise `BadRequest` for a shared replay that is too small for an episode, or too large for this machine."""
    assert isinstance(experiment.rl, OffPolicyHyper)
    hyper, longest = experiment.rl, experiment.mdp.longest_episode
    if longest is not None and 2 * longest > hyper.capacity:
        raise BadRequest(f"must be at least {2 * longest}: episodes have up to {longest} decisions", "rl.capacity")
    hyper.check_ring(spec, replay_shape(hyper), experiment.budget.steps or experiment.mdp.budget)


class JobWorkers:
    """A factory of members that do the jobs; those of one process share what they see of the replay."""

    def __init__(self, experiment: Experiment, spec: Spec, seed: int, device: torch.device) -> None:
        assert isinstance(experiment.rl, OffPolicyHyper)
        self.feed_reader = SharedReader(spec, replay_shape(experiment.rl))
        self._make = partial(JobWorker, experiment, spec, seed, device, self.feed_reader)

    def __call__(self, member: int) -> JobWorker:
        return self._make(member)


class JobWorker:
    """A member of the group that does the jobs."""

    def __init__(
        self, experiment: Experiment, spec: Spec, seed: int, device: torch.device, reader: SharedReader, member: int
    ) -> None:
        torch.set_num_threads(experiment.rl.threads)
        assert isinstance(experiment.rl, OffPolicyHyper) and isinstance(experiment.ec, SharedCriticEvolution)
        self.experiment, self.evolution = experiment, experiment.ec
        self.learner = cast(AnyLearner, experiment.rl.learner(spec, seed, device))
        self.reader = reader

    def train_critic(self, address: Sequence[Any], job: Sequence[Any]) -> dict[str, Any]:
        """Do a `CriticSteps`; return the critic's new state."""
        began, task = time.monotonic(), CriticSteps(*job)
        load_critic(self.learner, task.state)
        reading, first, metrics = self._reading(address, task), task.first, {}
        for target in task.targets:
            theta = torch.from_numpy(np.array(target))
            metrics = train_critic(self.learner, theta, reading, first, task.gradient_steps, task.chain, task.step)
            first += task.gradient_steps
        ended = time.monotonic()
        state = arrays(self.learner.critic_state())
        return {"state": state, "metrics": metrics, "worked": [Worked(os.getpid(), began, ended, ended, host_id())]}

    def live(self, address: Sequence[Any], job: Sequence[Any]) -> dict[str, Any]:
        """Do a `Lifetime`; return each individual's `IndividualResult` with its transitions, what was worked for each,
        and the statistics of training. The first one's work includes the training of all."""
        began, lifetime = time.monotonic(), Lifetime(*job)
        outcomes, metrics = self._train(address, lifetime), dict[str, float]()
        start = time.monotonic()
        share, lives, worked = (start - began) / len(outcomes), list[Any](), list[Worked]()
        for place, outcome in enumerate(outcomes):
            if not isinstance(outcome, NotFinite):
                metrics |= outcome[1]
            result, fragments = self._play(lifetime, place, outcome)
            ended = time.monotonic()
            lives.append((result._replace(seconds=share + ended - start), fragments))
            worked.append(Worked(os.getpid(), start if place else began, start, ended, host_id()))
            start = ended
        return {"lives": lives, "metrics": metrics, "worked": worked}

    def _train(self, address: Sequence[Any], lifetime: Lifetime) -> Sequence[Trained | NotFinite]:
        """Return the weights [D] that each individual plays with, and the statistics of its training."""
        theta = torch.from_numpy(np.array(lifetime.weights))
        if lifetime.role != TRAINED:
            return [(parameters, {}) for parameters in theta]
        load_critic(self.learner, lifetime.guide)
        reading = self._reading(address, lifetime)
        return train_actors(self.learner, theta, reading, lifetime.gradient_steps, lifetime.ids, lifetime.step)

    def _play(self, lifetime: Lifetime, place: int, outcome: Trained | NotFinite) -> tuple[IndividualResult, list[Any]]:
        """Play what became of an individual; return its result and its transitions."""
        if isinstance(outcome, NotFinite):
            return failed_result(self.evolution, str(outcome))._replace(weights=lifetime.weights[place]), []
        self.learner.theta.copy_(outcome[0])
        self.learner.random.fill_(lifetime.random)
        try:
            result, fragments = self._episodes(lifetime.role, lifetime.ids[place], lifetime.random)
        except WITHOUT_RESULT as error:
            result, fragments = failed_result(self.evolution, why(error)), []
        if lifetime.role == TRAINED:
            result = result._replace(weights=outcome[0].cpu().numpy())
        return result, fragments

    def _episodes(self, role: str, number: int, random: bool) -> tuple[IndividualResult, list[Any]]:
        world, games = self.experiment.mdp, self.evolution.episodes_of(role)
        name = "individuals" if self.evolution.seeds == "common" else f"individual {number}"
        keys = seeds.Episodes(self.experiment.seed, name, evaluation=role == MEAN)
        width = math.ceil(games / world.sides) * world.sides
        arena = limited_arena(world, width, keys, self.experiment.eval.max_steps)
        try:
            noise = EvaluationNoise(arena, seeds.key(self.experiment.seed, "random", number), not random)
            episodes, fragments = record_episodes(arena, self.learner, noise)
        finally:
            arena.close()
        result = result_of_episodes(self.evolution, episodes, world.sides)
        return result, [] if role == MEAN else [tuple(x) for x in fragments]

    def _reading(self, address: Sequence[Any], job: Lifetime | CriticSteps) -> Reading:
        return Reading(self.reader.storage(Address(*address)), job.length, job.oldest)
