"""The loop of an evolution with a shared critic: give out jobs, append what was played, tell the evolver.

Three kinds of jobs run side by side (`evorl.population.critic_jobs`): individuals, which may be trained before they
play, evaluations of the mean, and steps of the critic. This process alone appends to the replay, in the order of
telling. The algorithms differ only in the job that goes next:

- CEM-RL and P-CEM-RL with a serial critic finish all training of the critic for a generation on the replay as it was
  when the generation began. Results are told in a fixed order, so any number of workers gives the same bits.
- With a critic beside the actors, results are told in the order of arrival, which ``jobs.jsonl`` keeps. In one process
  the critic comes first, then evaluations of the mean, then the oldest individual.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from evorl.cluster.core import stoppable
from evorl.ec.core import Individual, pack, unpack
from evorl.ec.shared_critic import MEAN, TRAINED, SharedCriticEvolution, SharedCriticEvolver
from evorl.ec.space import Space
from evorl.mdp.core import StateDict, WorldError
from evorl.mdp.forms import Mismatch
from evorl.population.critic_jobs import (
    CRITIC,
    RANDOM,
    CriticSteps,
    Job,
    JobWorkers,
    Lifetime,
    Worked,
    check_replay,
    job_of,
    packed,
    replay_shape,
    unpacked,
)
from evorl.population.critic_records import Clocks, WorkSeconds, distribution_metrics, job_rows
from evorl.population.critics import Critics
from evorl.population.results import (
    check_results,
    errors_under_ec,
    objective_names,
    population_row,
    to_evaluation,
    top_rows,
)
from evorl.population.warm_start import JobEntry, journal_ended
from evorl.replay.shared import SharedReplay
from evorl.replay.storage import Fragment
from evorl.rl.core import Metrics, NotFinite
from evorl.rl.evaluation import fitness
from evorl.rl.off_policy import OffPolicyHyper
from evorl.rl.separate_updates import AnyLearner, load_critic
from evorl.training.experiment import Experiment
from evorl.training.session import Progress
from evorl.training.train import Start, device, evaluated, load_policy, spec
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest

log = logging.getLogger("evorl")


class CriticPopulation:
    """An evolver, the replay, the critics and the jobs in flight: everything that a checkpoint holds."""

    def __init__(
        self,
        experiment: Experiment,
        evolution: SharedCriticEvolution,
        order: Sequence[JobEntry] = (),
        init: Start | None = None,
    ) -> None:
        """``order``: the journal of a run to repeat; ``init``: the run to start from. Raises `BadRequest`."""
        self.experiment, self.evolution = experiment, evolution
        self.hyper, self.spec = cast(OffPolicyHyper, experiment.rl), spec(experiment.mdp)
        check_replay(experiment, self.spec)
        with errors_under_ec():
            check_results(evolution.wanted(Space()), experiment.mdp)
        self.beside = evolution.follows_arrival
        worker = evolution.critic_worker
        number, self.max_lag = (worker.critics, worker.max_critic_lag) if worker else (1, None)
        self.slots = evolution.slots or evolution.population
        here = device(experiment.device) if experiment.cluster.in_process else torch.device("cpu")
        make = JobWorkers(experiment, self.spec, experiment.seed, here)
        self.group = experiment.cluster.spawn(make, self.slots + number, (BadRequest, NotFinite, Mismatch, WorldError))
        torch.set_num_threads(experiment.rl.threads)
        try:
            self.replay = SharedReplay(self.spec, replay_shape(self.hyper))
            self.address = self.replay.address(os.getpid())
            self.group.set_feed(self.replay)
            self.learner = cast(AnyLearner, self.hyper.learner(self.spec, experiment.seed, torch.device("cpu")))
            self.learner.replay = self.replay
            if init is not None:
                load_policy(self.learner, init)
            self.guide = list(self.learner.guide())
            self.critics = Critics(
                [self._critic_learner(chain, init) for chain in range(number)], evolution.critic_ratio
            )
            start = self.learner.theta.numpy().copy()
            self.space = Space((), len(start), lambda _: start, tuple(self.learner.layout.sizes))
            self.evolver = cast(SharedCriticEvolver, evolution.evolver(self.space, experiment.seed))
        except BaseException:
            self.close()
            raise
        self.steps = self.evaluations = self.failed = 0
        self.uncounted = 0  # environment steps of evaluations of the mean
        self.jobs = self.trained = self.warm_up_episodes = 0  # jobs and individuals to train given out; proposed
        self.lengths: deque[int] = deque(maxlen=evolution.population)  # of the last individuals' lives
        self.best: tuple[float, int] | None = None
        self.waiting: list[Individual] = []  # for the critic, in a generation
        self.in_flight: list[Job] = []
        self.clocks, self.seconds = Clocks(), WorkSeconds()  # the latter since the last row of metrics
        self.metrics: Metrics = {}  # since then
        self.processes: dict[tuple[str, int], int] = {}  # numbers of the workers, by host and process
        self.began = time.monotonic()
        self._order, self._done = order, 0

    def _critic_learner(self, chain: int, init: Start | None) -> AnyLearner:
        """Further critics begin with weights of their own, unless they start from another run's."""
        if chain == 0 or init is not None:
            return self.learner
        seed = seeds.key(self.experiment.seed, "critic", chain)
        return cast(AnyLearner, self.hyper.learner(self.spec, seed, torch.device("cpu")))

    @property
    def due(self) -> bool:
        """Whether a replay still has jobs to repeat that add no environment step."""
        return self._repeats and self._order[self._done].step <= self.steps

    @property
    def ended(self) -> bool:
        """Whether a replay has no job left; a damaged journal may tell an end far beyond its jobs."""
        return journal_ended(self._order, self._done, self.experiment)

    @property
    def _repeats(self) -> bool:
        return self._done < len(self._order)

    # -------------------------------------------------------------- the loop

    def iterate(self) -> Progress:
        """Finish one job."""
        self._fill()
        with stoppable():  # the jobs in flight are in the checkpoint, and are done again
            job = self._next()
            answer, now = job.future.result(), time.monotonic()
        self.in_flight.remove(job)
        worked, before = [Worked(*one) for one in answer["worked"]], self.steps
        if job.kind == CRITIC:
            self._finish_critic(job, answer)
        lives = zip(job.individuals, answer.get("lives", ()), strict=True)
        rows = [self._finish_individual(job.kind, *one) for one in lives]
        for one in worked:
            self.seconds.add(job.kind, one)
        self.metrics |= answer["metrics"]
        worker = self.processes.setdefault(worked[0].worker, len(self.processes))
        entries = job_rows(job, self.clocks.here(worked, now), worker, self.began, self.steps, rows)
        self._done += len(entries)
        metrics: Metrics = {}
        if self.steps > before:
            metrics = {**self.metrics, **self._progress()}
            self.metrics = {}
        return Progress(metrics, [row for row in rows if job.kind not in (MEAN, RANDOM)], entries)

    def _fill(self) -> None:
        """Give out all jobs that may begin now."""
        if self.beside:
            for chain in range(len(self.critics)):
                self._send_critic_beside(chain)
        while self._free() and (one := self._propose()) is not None:
            if one.role == TRAINED and not self.beside:
                self.waiting.append(one)
            else:
                self._send_individuals([one])
        if not self.beside and self.waiting and not self._training_critics():
            self._send_critic_of_generation()
        if not self.in_flight:
            raise RuntimeError("the evolver waits for evaluations, and none is in flight")

    def _free(self) -> bool:
        individuals = sum(job.kind != CRITIC for job in self.in_flight) + len(self.waiting)
        lagging = self.max_lag is not None and self._lag() > self.max_lag
        return individuals < self.slots and not lagging

    def _training_critics(self) -> list[Job]:
        return [job for job in self.in_flight if job.kind == CRITIC]

    def _lag(self) -> float:
        return 0.0 if self._warming() else self.critics.lag(self.steps)

    def _warming(self) -> bool:
        return self.steps < max(self.hyper.warm_up, 1)

    def _propose(self) -> Individual | None:
        """The next individual; None while the evolver waits."""
        if self._warming() and self.evolution.warm_up_actions == "uniform":
            flying = sum(job.kind == RANDOM for job in self.in_flight)
            if self.lengths and self.steps + flying * sum(self.lengths) / len(self.lengths) >= self.hyper.warm_up:
                return None  # those in flight will do
            self.warm_up_episodes += 1
            genes, weights = self.space.individual(self.evolver.mean)
            return Individual(-self.warm_up_episodes, genes, weights, role=RANDOM)
        if not self.beside and any(job.kind == RANDOM for job in self.in_flight):
            return None  # a generation begins when all that it learns from is there
        # before the critics have learned from the warm-up, individuals would follow random ones
        train = not self._warming() and (not self.beside or self.critics.learned(self.hyper.warm_up))
        return next(iter(self.evolver.ask(1, train)), None)

    def _send_individuals(self, some: Sequence[Individual]) -> None:
        """Give out individuals of one role in one job. Trained ones follow the newest version of their critic."""
        guide, version, steps, role = {}, 0, 0, some[0].role
        if role == TRAINED:
            critic = self.critics[self.trained % len(self.critics)]
            guide, version = critic.guide(self.guide), critic.version
            steps = round(self.evolution.actor_ratio * sum(self.lengths))
            self.trained += len(some)
        told = self.evolution.warm_up_actions == "told" and role != MEAN and self._warming()
        weights = np.stack([one.weights for one in some if one.weights is not None])
        ids, (length, oldest) = [one.id for one in some], self._readable()
        given = Lifetime(ids, role, weights, role == RANDOM or told, guide, length, oldest, steps, self.steps)
        self._send(role, some, given, version)

    def _send_critic_beside(self, chain: int) -> None:
        """Give a critic its next steps unless it is at work, or has taken all that the environment steps allow."""
        busy = any(isinstance(job.given, CriticSteps) and job.given.chain == chain for job in self.in_flight)
        if busy or self._warming() or not self.critics.may_learn(chain, self.steps):
            return
        _, weights = self.space.individual(self.evolver.mean)
        assert weights is not None
        self._send_critic(chain, [weights])

    def _send_critic_of_generation(self) -> None:
        """CEM-RL: the critic learns for the next trained individual; P-CEM-RL: for all of them."""
        each = self.evolution.critic_order == "each"
        targets = [one.weights for one in self.waiting if one.weights is not None]
        self._send_critic(0, targets[:1] if each else targets)

    def _send_critic(self, chain: int, targets: Sequence[Any]) -> None:
        critic, steps = self.critics[chain], self.evolution.critic_steps(sum(self.lengths))
        length, oldest = self._readable()
        given = CriticSteps(chain, critic.state, targets, length, oldest, critic.gradient_steps, steps, self.steps)
        self._send(CRITIC, [], given, critic.version)

    def _readable(self) -> tuple[int, int]:
        count = self.replay.count
        return count, self.replay.oldest(count) if count else 0

    def _send(self, kind: str, some: Sequence[Individual], given: Lifetime | CriticSteps, version: int) -> None:
        future = self.group.any("train_critic" if kind == CRITIC else "live", tuple(self.address), tuple(given))
        self.in_flight.append(Job(self.jobs, kind, some, given, version, future))
        self.jobs += 1

    def _next(self) -> Job:
        """The job whose answer is taken next."""
        if self._repeats:
            return job_of(self.in_flight, self._order[self._done], self._done + 1)
        if critics := self._training_critics():
            if not self.beside or self.experiment.cluster.in_process:
                return critics[0]
        elif not self.beside:  # an order that does not depend on the workers
            return min(self.in_flight, key=lambda job: abs(job.individuals[0].id))
        if self.experiment.cluster.in_process:
            return min(self.in_flight, key=lambda job: (job.kind != MEAN, job.number))
        ready = self.group.first([job.future for job in self.in_flight])
        return next(job for job in self.in_flight if job.future is ready)

    # -------------------------------------------------------------- answers

    def _finish_critic(self, job: Job, answer: dict[str, Any]) -> None:
        assert isinstance(job.given, CriticSteps)
        critic = self.critics[job.given.chain]
        critic.state = {name: np.array(x) for name, x in answer["state"].items()}
        critic.gradient_steps += job.given.gradient_steps * len(job.given.targets)
        critic.version += 1
        if not self.beside:
            number, together = len(job.given.targets), self.evolution.trained_in_one_job
            for first in range(0, number, together):
                self._send_individuals(self.waiting[first : min(first + together, number)])
            self.waiting = self.waiting[number:]

    def _finish_individual(self, role: str, played: Individual, life: Sequence[Any]) -> dict[str, Any]:
        result, fragments = life
        one, reason, seconds = to_evaluation(played, result)
        if role == MEAN:
            self.uncounted += one.cost
        else:
            self._append([Fragment(*x) for x in fragments])
            self.steps += one.cost
            if not reason:
                self.lengths.append(one.cost)
        if reason:
            log.warning("individual %d failed and has no fitness: %s", one.individual.id, reason)
            self.failed += 1
            if not self.lengths and self.failed >= self.evolution.population:
                raise WorldError(f"every individual so far failed; the last one: {reason}")
        self.evaluations += role not in (MEAN, RANDOM)
        if role != RANDOM:
            self.metrics |= self.evolver.tell([one])
        return population_row(one, self.space, objective_names(self.evolution), self.steps, seconds)

    def _append(self, fragments: Sequence[Fragment]) -> None:
        """Append episodes. A job that still reads rows which they would overwrite is waited for."""
        for new in fragments:
            size = len(new.done)
            if 2 * size > self.replay.capacity:
                raise WorldError(f"an episode of {size} decisions needs rl.capacity={2 * size} or more")
            for job in self.in_flight:
                if job.reads and not self.replay.spares(job.given.length, size, size + 1 + self.replay.shape.depth):
                    job.future.result()
            self.replay.append(new)

    # -------------------------------------------------------------- records

    def _progress(self) -> Metrics:
        return {
            "population/evaluations": self.evaluations, "population/failed": self.failed,
            "population/generation": self.evolver.generation, **distribution_metrics(self.evolver),
            **self.group.counters(),
            "replay/size": min(self.replay.count, self.replay.capacity), "train/uncounted_steps": self.uncounted,
            "critic/lag": self._lag(), "critic/gradient_steps": self.critics.gradient_steps,
            **self.seconds.take(),
        }  # fmt: skip

    def top_individuals(self) -> list[dict[str, Any]]:
        now = self.evolver.generation if self.evolution.asynchronous else self.evaluations  # what births count
        return top_rows(self.evolver.population, self.space, objective_names(self.evolution), now)

    # -------------------------------------------------------------- the session's interface

    def evaluate(self) -> Metrics:
        """Evaluate the mean. Raises `NotFinite`, which names the step."""
        self._load_mean()
        metrics = evaluated(self.learner, self.experiment, self.steps)
        if self.best is None or fitness(metrics) > self.best[0]:
            self.best = (fitness(metrics), self.steps)
        return metrics

    def _load_mean(self) -> None:
        """Make the learner what the run has learned: the mean with the first critic."""
        _, weights = self.space.individual(self.evolver.mean)
        assert weights is not None
        self.learner.set_target_policy(torch.from_numpy(weights))
        self.learner.theta.copy_(torch.from_numpy(weights))
        load_critic(self.learner, self.critics[0].state)

    def fitness(self, evaluated: Metrics | None) -> float | None:
        return None if evaluated is None else fitness(evaluated)

    def result(self) -> dict[str, Any]:
        found = None if self.best is None else {"fitness": self.best[0], "step": self.best[1]}
        return {"best": found, "evaluations": self.evaluations, "uncounted_steps": self.uncounted}

    def state_dict(self) -> StateDict:
        self._load_mean()
        return {
            **{name: getattr(self, name) for name in _COUNTERS},
            "best": None if self.best is None else list(self.best), "lengths": list(self.lengths),
            "learner": self.learner.state_dict(),  # for evorl.evaluate and init=; it holds the replay
            "evolver": self.evolver.state_dict(), "waiting": pack(self.waiting),
            "critics": self.critics.state_dict(),
            "flying": {str(n): packed(job) for n, job in enumerate(self.in_flight)},
            "metrics": dict(self.metrics), "clock": {"time": time.monotonic() - self.began, **self.seconds.seconds},
        }  # fmt: skip

    def appended_rows(self) -> StateDict:
        return {"learner": self.learner.appended_rows()}

    def load_state_dict(self, state: StateDict) -> None:
        for name in _COUNTERS:
            setattr(self, name, state[name])
        self.best = None if state["best"] is None else (state["best"][0], state["best"][1])
        self.lengths.extend(state["lengths"])
        self.learner.load_state_dict(state["learner"])
        self.evolver.load_state_dict(state["evolver"])
        self.waiting = unpack(state["waiting"])
        self.critics.load_state_dict(state["critics"])
        self.metrics, self.seconds.seconds = dict(state["metrics"]), dict(state["clock"])
        self.began = time.monotonic() - self.seconds.seconds.pop("time")
        jobs = self.jobs
        for n in range(len(state["flying"])):
            self.jobs, kind, some, given, version = unpacked(state["flying"][str(n)])
            self._send(kind, some, given, version)
        self.jobs = jobs

    def close(self) -> None:
        self.group.close()
        self.experiment.mdp.close()
        if hasattr(self, "replay"):
            self.replay.close()


_COUNTERS = ("steps", "evaluations", "failed", "uncounted", "jobs", "trained", "warm_up_episodes", "_done")
