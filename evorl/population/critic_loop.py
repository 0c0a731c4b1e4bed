"""The loop of an evolution with a shared critic: send jobs, append what was played, tell the evolver.

Three kinds of jobs run side by side (`evorl.population.critic_jobs`): individuals, which may be trained before they
play, evaluations of the mean, and steps of the critic. This process alone appends to the replay, in the order in which
the evolver receives results. The algorithms differ only in the job that goes next:

- CEM-RL and P-CEM-RL with a serial critic finish all training of the critic for a generation on the replay as it was
  when the generation began. Results are told in a fixed order, so any number of workers gives the same bits.
- With a critic beside the actors, results are told in the order of arrival, which ``jobs.jsonl`` keeps. In one process
  the critic comes first, then evaluations of the mean, then the oldest individual.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, cast

import numpy as np
import torch

from evorl.ec.core import Individual, pack, unpack
from evorl.ec.shared_critic import MEAN, TRAINED, CriticWorker, SharedCriticEvolution, SharedCriticEvolver
from evorl.ec.space import Space
from evorl.mdp.core import Array, StateDict, WorldError
from evorl.mdp.forms import Mismatch
from evorl.population.core import PopulationLoop
from evorl.population.critic_jobs import (
    CRITIC,
    RANDOM,
    CriticSteps,
    Job,
    JobWorkers,
    Lifetime,
    Worked,
    check_replay,
    packed,
    replay_shape,
    unpacked,
)
from evorl.population.critic_records import WorkClock, distribution_metrics
from evorl.population.critics import Critics
from evorl.population.journal import JobEntry
from evorl.population.log_rows import population_row
from evorl.population.objectives import check_results
from evorl.population.results import errors_under_ec, to_evaluation
from evorl.replay.shared import SharedReplay
from evorl.replay.storage import Fragment
from evorl.rl.core import Metrics, NotFinite
from evorl.rl.evaluation import fitness
from evorl.rl.off_policy import OffPolicyHyper
from evorl.rl.separate_updates import AnyLearner, load_critic
from evorl.training.core import Progress
from evorl.training.experiment import Experiment
from evorl.training.train import Start, best_evaluation, device, evaluated, load_policy, spec
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest


class CriticPopulation(PopulationLoop[Job]):
    """A population with a shared critic, the replay and the critics: everything that a checkpoint holds."""

    counters = (*PopulationLoop.counters, "uncounted", "jobs", "trained", "warm_up_episodes", "succeeded")

    evolution: SharedCriticEvolution
    evolver: SharedCriticEvolver

    def __init__(
        self,
        experiment: Experiment,
        evolution: SharedCriticEvolution,
        order: Sequence[JobEntry] = (),
        init: Start | None = None,
    ) -> None:
        """``order``: the journal of a run to repeat; ``init``: the run to start from. Raises `BadRequest`."""
        super().__init__(experiment, evolution, order)
        self.hyper, self.spec = cast(OffPolicyHyper, experiment.rl), spec(experiment.mdp)
        check_replay(experiment, self.spec)
        with errors_under_ec():
            check_results(evolution.wanted(Space()), experiment.mdp)
        self.objective_names = evolution.objective_names
        self.slots = evolution.slots or evolution.population
        self.beside = evolution.follows_arrival
        self.critic_worker = evolution.critic_worker or CriticWorker()
        self.uncounted = 0  # environment steps of evaluations of the mean
        self.jobs = self.trained = 0  # jobs, and individuals to train, that were sent
        self.warm_up_episodes = 0  # that were proposed
        self.succeeded = 0  # individuals of the search that did not fail
        self.lengths: deque[int] = deque(maxlen=evolution.population)  # of the last individuals' lives
        self.waiting: list[Individual] = []  # for the critic, in a generation
        self.metrics: Metrics = {}  # since the last row
        try:
            self._open_group_and_replay()
            self._make_critics_and_evolver(init)
        except BaseException:
            self.close()
            raise
        self.clock = WorkClock()

    def _open_group_and_replay(self) -> None:
        e, members = self.experiment, self.slots + self.critic_worker.critics
        memory = self._open.enter_context(ExitStack())  # closed after the group, which reads it
        replay_device = device(e.device) if e.cluster.in_process else torch.device("cpu")
        make = JobWorkers(e, self.spec, e.seed, replay_device)
        self.group = e.cluster.spawn(make, members, (BadRequest, NotFinite, Mismatch, WorldError))
        self._open.callback(self.group.close)
        torch.set_num_threads(e.rl.threads)  # after the workers have started
        self.replay = SharedReplay(self.spec, replay_shape(self.hyper))
        memory.callback(self.replay.close)
        self.address = self.replay.address(os.getpid())
        self.group.set_feed(self.replay)

    def _make_critics_and_evolver(self, init: Start | None) -> None:
        seed = self.experiment.seed
        self.learner = self._new_learner(seed)
        self.learner.replay = self.replay
        if init is not None:
            load_policy(self.learner, init)
        learners = [self.learner]
        for chain in range(1, self.critic_worker.critics):  # with weights of their own, or those of another run
            learners.append(self.learner if init is not None else self._new_learner(seeds.key(seed, "critic", chain)))
        self.critics = Critics(learners, self.evolution.critic_ratio)
        start = self.learner.theta.numpy().copy()
        self.space = Space((), len(start), lambda _: start, tuple(self.learner.layout.sizes))
        self.evolver = cast(SharedCriticEvolver, self.evolution.evolver(self.space, seed))

    def _new_learner(self, seed: int) -> AnyLearner:
        return cast(AnyLearner, self.hyper.learner(self.spec, seed, torch.device("cpu")))

    @property
    def any_fitness(self) -> bool:
        """Until the first individual of the search is back, episodes of the warm-up stand for them."""
        return self.succeeded > 0 if self.evaluations else bool(self.lengths)

    @property
    def births(self) -> int:
        return self.evolver.generation if self.evolution.asynchronous else self.evaluations

    # -------------------------------------------------------------- which job goes next

    def fill_slots(self) -> None:
        """Send all jobs that may begin now."""
        if self.beside:
            for chain in range(len(self.critics)):
                self._send_critic_beside(chain)
        while self._may_propose() and (individual := self._propose()) is not None:
            if individual.role == TRAINED and not self.beside:
                self.waiting.append(individual)
            else:
                self._send_individuals([individual])
        if not self.beside and self.waiting and not self._training_critics():
            self._send_critic_of_generation()

    def _may_propose(self) -> bool:
        individuals = sum(job.kind != CRITIC for job in self.in_flight) + len(self.waiting)
        bound = self.critic_worker.max_critic_lag
        return individuals < self.slots and (bound is None or self._lag() <= bound)

    def _training_critics(self) -> list[Job]:
        return [job for job in self.in_flight if job.kind == CRITIC]

    def _lag(self) -> float:
        return 0.0 if self._warming() else self.critics.lag(self.steps)

    def _warming(self) -> bool:
        return self.steps < max(self.hyper.warm_up, 1)

    def _propose(self) -> Individual | None:
        """The next individual; None while the evolver waits."""
        if self._warming() and self.evolution.warm_up_actions == "uniform":
            playing = sum(job.kind == RANDOM for job in self.in_flight)
            if self.lengths and self.steps + playing * sum(self.lengths) / len(self.lengths) >= self.hyper.warm_up:
                return None  # those in flight will do
            self.warm_up_episodes += 1
            return Individual(-self.warm_up_episodes, np.zeros(0), self._mean_weights(), role=RANDOM)
        if not self.beside and any(job.kind == RANDOM for job in self.in_flight):
            return None  # a generation begins when all that it learns from is there
        # before the critics have learned from the warm-up, individuals would follow random ones
        train = not self._warming() and (not self.beside or self.critics.learned(self.hyper.warm_up))
        return next(iter(self.evolver.ask(1, train)), None)

    def _mean_weights(self) -> Array:
        """Weights [D] of the mean."""
        weights = self.space.individual(self.evolver.mean)[1]
        assert weights is not None
        return weights

    def _send_individuals(self, individuals: Sequence[Individual]) -> None:
        """Send individuals of one role in one job. Trained ones follow the newest version of their critic."""
        guide, version, steps, role = {}, 0, 0, individuals[0].role
        if role == TRAINED:
            critic = self.critics[self.trained % len(self.critics)]
            guide, version = critic.guide([*self.learner.guide()]), critic.version
            steps = round(self.evolution.actor_ratio * sum(self.lengths))
            self.trained += len(individuals)
        random = role == RANDOM or (self.evolution.warm_up_actions == "told" and role != MEAN and self._warming())
        weights = np.stack([individual.weights for individual in individuals if individual.weights is not None])
        ids = [individual.id for individual in individuals]
        task = Lifetime(ids, role, weights, random, guide, *self._readable(), steps, self.steps)
        self._send(role, individuals, task, version)

    def _send_critic_beside(self, chain: int) -> None:
        """Send a critic its next steps unless it is at work, or has taken all that the environment steps allow."""
        busy = any(isinstance(job.task, CriticSteps) and job.task.chain == chain for job in self.in_flight)
        if not (busy or self._warming()) and self.critics.may_learn(chain, self.steps):
            self._send_critic(chain, [self._mean_weights()])

    def _send_critic_of_generation(self) -> None:
        """CEM-RL: the critic learns for the next trained individual; P-CEM-RL: for all of them."""
        each = self.evolution.critic_order == "each"
        targets = [individual.weights for individual in self.waiting if individual.weights is not None]
        self._send_critic(0, targets[:1] if each else targets)

    def _send_critic(self, chain: int, targets: Sequence[Array]) -> None:
        critic, steps = self.critics[chain], self.evolution.critic_steps(sum(self.lengths))
        task = CriticSteps(chain, critic.state, targets, *self._readable(), critic.gradient_steps, steps, self.steps)
        self._send(CRITIC, [], task, critic.version)

    def _readable(self) -> tuple[int, int]:
        """Length and oldest row of the replay that a job may read."""
        count = self.replay.count
        return count, self.replay.oldest(count) if count else 0

    def _send(self, kind: str, individuals: Sequence[Individual], task: Lifetime | CriticSteps, version: int) -> None:
        self.in_flight.append(self._sent(self.jobs, kind, individuals, task, version))
        self.jobs += 1

    def _sent(
        self, number: int, kind: str, individuals: Sequence[Individual], task: Lifetime | CriticSteps, version: int
    ) -> Job:
        future = self.group.any("train_critic" if kind == CRITIC else "live", tuple(self.address), tuple(task))
        return Job(number, kind, individuals, task, version, future)

    def _next_in_order(self) -> Job | None:
        if critics := self._training_critics():
            if not self.beside or self.experiment.cluster.in_process:
                return critics[0]
        elif not self.beside:  # an order that does not depend on the workers
            return min(self.in_flight, key=lambda job: abs(job.individuals[0].id))
        if self.experiment.cluster.in_process:
            return min(self.in_flight, key=lambda job: (job.kind != MEAN, job.number))
        return None

    # -------------------------------------------------------------- answers

    def _finish(self, job: Job, answer: dict[str, Any]) -> Progress:
        arrived, before = time.monotonic(), self.steps
        if job.kind == CRITIC:
            self._finish_critic(job, answer)
        lives = zip(job.individuals, answer.get("lives", ()), strict=True)
        rows = [self._finish_individual(job.kind, *life) for life in lives]
        self.metrics |= answer["metrics"]
        lines = self.clock.lines(job, [Worked(*part) for part in answer["worked"]], arrived, self.steps, rows)
        metrics: Metrics = {}
        if self.steps > before:
            metrics, self.metrics = {**self.metrics, **self._metrics()}, {}
        return Progress(metrics, [] if job.kind in (MEAN, RANDOM) else rows, lines)

    def _finish_critic(self, job: Job, answer: dict[str, Any]) -> None:
        assert isinstance(job.task, CriticSteps)
        critic, number = self.critics[job.task.chain], len(job.task.targets)
        critic.state = {name: np.array(x) for name, x in answer["state"].items()}
        critic.gradient_steps += job.task.gradient_steps * number
        critic.version += 1
        if not self.beside:
            together = self.evolution.trained_in_one_job
            for first in range(0, number, together):
                self._send_individuals(self.waiting[first : min(first + together, number)])
            self.waiting = self.waiting[number:]

    def _finish_individual(self, role: str, played: Individual, life: Sequence[Any]) -> dict[str, Any]:
        result, fragments = life
        evaluation, reason, seconds = to_evaluation(played, result)
        if role == MEAN:
            self.uncounted += evaluation.cost
        else:
            self._append([Fragment(*x) for x in fragments])
            self.steps += evaluation.cost
            if not reason:
                self.lengths.append(evaluation.cost)
        if role not in (MEAN, RANDOM):
            self.evaluations += 1
            self.succeeded += not reason
        self._count_failures([(evaluation, reason)])
        if role != RANDOM:
            self.metrics |= self.evolver.tell([evaluation])
        return population_row(evaluation, self.space, self.objective_names, self.steps, seconds)

    def _append(self, fragments: Sequence[Fragment]) -> None:
        """Append episodes. A job that still reads rows which they would overwrite is waited for."""
        for new in fragments:
            size = len(new.done)
            if 2 * size > self.replay.capacity:
                raise WorldError(f"an episode of {size} decisions needs rl.capacity={2 * size} or more")
            for job in self.in_flight:
                if job.reads and not self.replay.spares(job.task.length, size, size + 1 + self.replay.shape.depth):
                    job.future.result()
            self.replay.append(new)

    def _metrics(self) -> Metrics:
        return {
            **self._counts(), **distribution_metrics(self.evolver),
            "replay/size": min(self.replay.count, self.replay.capacity), "train/uncounted_steps": self.uncounted,
            "critic/lag": self._lag(), "critic/gradient_steps": self.critics.gradient_steps,
            **self.clock.seconds.take(),
        }  # fmt: skip

    # -------------------------------------------------------------- the session's interface

    def evaluate(self) -> Metrics:
        """Evaluate the mean. Raises `NotFinite`, which names the step."""
        self._load_mean()
        metrics = evaluated(self.learner, self.experiment, self.steps)
        self._note_fitness(fitness(metrics))
        return metrics

    def _load_mean(self) -> None:
        """Make the learner what the run has learned: the mean with the first critic."""
        weights = torch.from_numpy(self._mean_weights())
        self.learner.set_target_policy(weights)
        self.learner.theta.copy_(weights)
        load_critic(self.learner, self.critics[0].state)

    def fitness(self, evaluated: Metrics | None) -> float | None:
        return None if evaluated is None else fitness(evaluated)

    def result(self) -> dict[str, Any]:
        return {"best": best_evaluation(self.best), "evaluations": self.evaluations, "uncounted_steps": self.uncounted}

    def state_dict(self) -> StateDict:
        self._load_mean()
        return {
            **super().state_dict(),
            "lengths": list(self.lengths), "waiting": pack(self.waiting), "critics": self.critics.state_dict(),
            "learner": self.learner.state_dict(),  # for evorl.evaluate and init=; it holds the replay
            "metrics": dict(self.metrics), "clock": self.clock.state_dict(),
        }  # fmt: skip

    def appended_rows(self) -> StateDict:
        return {"learner": self.learner.appended_rows()}

    def load_state_dict(self, state: StateDict) -> None:
        # checkpoints of 0.1.0 do not count who succeeded, and their runs went on with anybody
        super().load_state_dict({"succeeded": state["evaluations"], **state})

    def _load_rest(self, state: StateDict) -> None:
        self.lengths.extend(state["lengths"])
        self.waiting = unpack(state["waiting"])
        self.critics.load_state_dict(state["critics"])
        self.learner.load_state_dict(state["learner"])
        self.metrics = dict(state["metrics"])
        self.clock.load_state_dict(state["clock"])

    def _packed(self, job: Job) -> StateDict:
        return packed(job)

    def _sent_again(self, state: StateDict) -> Job:
        return self._sent(*unpacked(state))
