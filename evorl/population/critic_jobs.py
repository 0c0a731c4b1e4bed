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

from evorl.cluster.core import Future, Make
from evorl.ec.core import Individual, pack, unpack
from evorl.ec.shared_critic import MEAN, TRAINED, SharedCriticEvolution
from evorl.mdp.core import Spec
from evorl.population.critics import arrays
from evorl.population.results import IndividualResult, failed_result, result_of_episodes
from evorl.replay.shared import Address, SharedReader
from evorl.replay.storage import Shape
from evorl.rl.core import NotFinite
from evorl.rl.evaluation import EvaluationNoise
from evorl.rl.off_policy import OffPolicyHyper, Reading
from evorl.rl.recorded_episodes import record_episodes
from evorl.rl.separate_updates import AnyLearner, load_critic, train_actor, train_critic
from evorl.training.experiment import Experiment
from evorl.util import seed as seeds
from evorl.util.types import StateDict

RANDOM = "random"
"""The role of episodes with random actions, which are played before the search begins."""
CRITIC = "critic"
"""The kind of jobs that train a critic."""

Array = NDArray[Any]


class Lifetime(NamedTuple):
    """What happens to an individual: gradient steps on a critic, then episodes."""

    id: int
    role: str
    weights: Array  # [D]
    random: bool  # its actions are random
    guide: Mapping[str, Any]  # the critic's part that a trained individual follows; empty if it is not trained
    length: int  # of the replay
    oldest: int
    gradient_steps: int
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
    """Who did a job, and when, in seconds since the epoch."""

    process: int
    began: float
    trained: float  # when training ended
    ended: float


class Job(NamedTuple):
    """A job that was given out."""

    number: int  # in the order of giving out
    kind: str  # the role of an individual, or CRITIC
    individual: Individual | None
    given: Lifetime | CriticSteps
    version: int  # of the critic that it uses
    future: Future

    @property
    def reads(self) -> bool:
        """Whether it reads the replay."""
        return self.kind in (CRITIC, TRAINED)


def packed(job: Job) -> StateDict:
    """What a checkpoint holds of a job in flight."""
    one = None if job.individual is None else pack([job.individual])
    return {
        "number": job.number, "kind": job.kind, "individual": one, "version": job.version,
        "given": {name: np.stack(x) if name == "targets" else x for name, x in job.given._asdict().items()},
    }  # fmt: skip


def unpacked(state: StateDict) -> tuple[int, str, Individual | None, Lifetime | CriticSteps, int]:
    """Number, kind, individual, what is given, and version of a job from `packed`."""
    critic = state["kind"] == CRITIC
    given: Lifetime | CriticSteps = CriticSteps(**state["given"]) if critic else Lifetime(**state["given"])
    one = None if critic else unpack(state["individual"])[0]
    return state["number"], state["kind"], one, given, state["version"]


def replay_shape(hyper: OffPolicyHyper) -> Shape:
    """The size of the shared replay; a quarter of its capacity may be appended while a job reads."""
    return Shape(hyper.capacity, 1, hyper.capacity // 4)


def job_workers(experiment: Experiment, spec: Spec, seed: int, device: torch.device) -> Make:
    """A factory of members that do the jobs; those of one process share what they see of the replay."""
    assert isinstance(experiment.rl, OffPolicyHyper)
    return partial(JobWorker, experiment, spec, seed, device, SharedReader(spec, replay_shape(experiment.rl)))


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

    def follow(self, piece: dict[str, Any]) -> None:
        """Take a piece of a replay that lies on another host."""
        self.reader.follow(piece)

    def train_critic(self, address: Sequence[Any], job: Sequence[Any]) -> dict[str, Any]:
        """Do a `CriticSteps`; return the critic's new state."""
        began, one = time.time(), CriticSteps(*job)
        load_critic(self.learner, one.state)
        reading, first, metrics = self._reading(address, one), one.first, {}
        for target in one.targets:
            theta = torch.from_numpy(np.array(target))
            metrics = train_critic(self.learner, theta, reading, first, one.gradient_steps, one.chain, one.step)
            first += one.gradient_steps
        ended = time.time()
        state = arrays(self.learner.critic_state())
        return {"state": state, "metrics": metrics, "worked": Worked(os.getpid(), began, ended, ended)}

    def live(self, address: Sequence[Any], job: Sequence[Any]) -> dict[str, Any]:
        """Do a `Lifetime`; return the `IndividualResult`, the transitions and the statistics of training."""
        began, one = time.time(), Lifetime(*job)
        weights, metrics = np.array(one.weights), dict[str, float]()
        fragments: list[Any] = []
        try:
            if one.role == TRAINED:
                load_critic(self.learner, one.guide)
                reading, theta = self._reading(address, one), torch.from_numpy(weights)
                theta, metrics = train_actor(self.learner, theta, reading, one.gradient_steps, one.id, one.step)
                weights = theta.cpu().numpy()
            trained = time.time()
            result, fragments = self._play(one, weights)
        except NotFinite as error:
            trained, result = time.time(), failed_result(self.evolution, str(error))
        if one.role == TRAINED:
            result = result._replace(weights=weights)
        ended = time.time()
        return {
            "result": result._replace(seconds=ended - began), "fragments": fragments, "metrics": metrics,
            "worked": Worked(os.getpid(), began, trained, ended),
        }  # fmt: skip

    def _play(self, one: Lifetime, weights: Array) -> tuple[IndividualResult, list[Any]]:
        world, games = self.experiment.mdp, self.evolution.episodes_of(one.role)
        name = "individuals" if self.evolution.seeds == "common" else f"individual {one.id}"
        arena = world.arena(
            math.ceil(games / world.sides) * world.sides,
            seeds.Episodes(self.experiment.seed, name, evaluation=one.role == MEAN),
        )
        try:
            self.learner.theta.copy_(torch.from_numpy(weights))
            self.learner.random.fill_(one.random)
            noise = EvaluationNoise(arena, seeds.key(self.experiment.seed, "random", one.id), not one.random)
            episodes, fragments = record_episodes(arena, self.learner, noise)
        finally:
            arena.close()
        result = result_of_episodes(self.evolution, episodes, world.sides)
        return result, [] if one.role == MEAN else [tuple(x) for x in fragments]

    def _reading(self, address: Sequence[Any], job: Lifetime | CriticSteps) -> Reading:
        return Reading(self.reader.storage(Address(*address)), job.length, job.oldest)
