"""The loop around one learner: collect, update, record; now and then judge and save."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import msgspec
import numpy as np
import torch

from evorl.cluster.core import Cluster
from evorl.cluster.local import Local
from evorl.mdp.core import Spec, StateDict, World, WorldError
from evorl.record import checkpoint
from evorl.record.core import Record, Recorder
from evorl.record.files import write_json
from evorl.record.terminal import Terminal, summary
from evorl.rl.core import Episode, Hyper, Metrics, NotFinite
from evorl.rl.judge import fitness, judge
from evorl.rl.sampler import Sampler
from evorl.rl.sources import source
from evorl.util import command
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.types import Count, Natural, Positive

log = logging.getLogger("evorl")
WINDOW = 100  # finished episodes that train/return averages over


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When a run ends: at whichever limit it meets first."""

    steps: Count | None = None
    """Environment steps; null takes the world's own budget."""
    seconds: Positive | None = None
    fitness: float | None = None
    """Stop when an evaluation reaches it."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """When and how a policy is judged while it trains."""

    every: Natural | None = None
    """Environment steps between evaluations; null is a tenth of the world's budget, 0 only at the end."""
    episodes: Count = 60
    """Games of the deterministic policy in each evaluation, and as many of the stochastic one."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """When a run saves itself, and what it keeps."""

    every: Natural | None = None
    """Environment steps between checkpoints; null is a twentieth of the world's budget, 0 only at the end."""
    keep: Count = 2
    """Newest checkpoints kept, besides the best."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One whole run, typed: what the config says, after the door."""

    mdp: World
    rl: Hyper
    cluster: Cluster = field(default_factory=Local)
    record: Record = field(default_factory=Record)
    seed: Natural = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    budget: Budget = field(default_factory=Budget)
    eval: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpoints = field(default_factory=Checkpoints)


class Interrupted(Exception):
    """A signal asked the run to stop; it saved first."""

    def __init__(self, number: int, step: int, directory: Path) -> None:
        again = command.run(f"resume={directory}")
        super().__init__(f"interrupted by {signal.Signals(number).name}; saved at step {step}; go on with: {again}")
        self.signal = number


class Run:
    """One learner, its actors and its counters: everything that a checkpoint holds."""

    def __init__(self, experiment: Experiment) -> None:
        hyper = experiment.rl
        self.experiment = experiment
        self.steps = 0  # environment steps
        self.iteration = 0  # batches learned from
        self.updates = 0  # gradient steps
        self.episodes = 0  # finished
        self.window: dict[str, deque[float]] = {}  # numbers of the last finished episodes
        self.best: tuple[float, int] | None = None  # fitness and step of the best evaluation
        where = device(experiment.device)
        # members elsewhere act on their CPU; the workers start before anything here has threads
        here = where if experiment.cluster.here else torch.device("cpu")
        member = partial(Sampler, experiment.mdp, hyper, experiment.seed, here)
        self.spec = spec(experiment.mdp)
        self.group = experiment.cluster.spawn(member, hyper.members, (BadRequest, NotFinite, WorldError))
        try:
            self.learner = hyper.learner(self.spec, experiment.seed, where)
            self.source = source(self.group, hyper, self.spec)
        except BaseException:
            self.close()
            raise

    def iterate(self) -> Metrics:
        """Collect one batch and learn from it. Raises `NotFinite`, naming the step."""
        started = time.monotonic()
        try:
            taken = self.source.take(self.learner, self.steps, self.iteration)
            sampled = time.monotonic()
            metrics = self.learner.update(taken.lesson, self.steps, self.iteration)
        except NotFinite as error:
            raise NotFinite(f"{error} (iteration {self.iteration}, after {self.steps} environment steps)") from None
        ended = time.monotonic()
        self.steps += taken.cost
        self.iteration += 1
        self.updates += int(metrics["optimizer/updates"])
        self._remember(taken.episodes)
        metrics |= (
            taken.metrics
            | self.group.counters()
            | {name: float(np.mean(numbers)) for name, numbers in self.window.items()}
        )
        return metrics | {
            "train/episodes": self.episodes,
            "optimizer/updates": self.updates,
            "speed/steps_per_second": taken.cost / (ended - started),
            "speed/sample_seconds": sampled - started,
            "speed/update_seconds": ended - sampled,
        }

    def _remember(self, episodes: list[Episode]) -> None:
        names = self.spec.rewards
        self.episodes += len(episodes)
        for episode in episodes:
            numbers = {"train/return": episode.ret, "train/episode_length": episode.length}
            if len(names) > 1:
                numbers |= {f"train/return_{n}": x for n, x in zip(names, episode.rewards, strict=True)}
            numbers |= {f"train/{name}": x for name, x in episode.results.items()}
            for name, x in numbers.items():
                self.window.setdefault(name, deque(maxlen=WINDOW)).append(x)

    def judge(self) -> Metrics:
        """Evaluate the present policy; the same seeds every time. Raises `NotFinite`, naming the step."""
        e = self.experiment
        try:
            metrics = judge(self.learner, e.mdp, e.seed, e.eval.episodes)
        except NotFinite as error:
            raise NotFinite(f"{error} (in the evaluation after {self.steps} environment steps)") from None
        if self.best is None or fitness(metrics) > self.best[0]:
            self.best = (fitness(metrics), self.steps)
        return metrics

    def state_dict(self) -> StateDict:
        return {
            "steps": self.steps, "iteration": self.iteration, "updates": self.updates, "episodes": self.episodes,
            "best": None if self.best is None else list(self.best),
            "window": {name: list(numbers) for name, numbers in self.window.items()},
            "learner": self.learner.state_dict(),
            "actors": {str(i): one for i, one in enumerate(self.group.states())},
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        self.steps, self.iteration = state["steps"], state["iteration"]
        self.updates, self.episodes = state["updates"], state["episodes"]
        self.best = None if state["best"] is None else (state["best"][0], state["best"][1])
        self.window = {name: deque(numbers, maxlen=WINDOW) for name, numbers in state["window"].items()}
        self.learner.load_state_dict(state["learner"])
        self.group.restore([state["actors"][str(i)] for i in range(self.group.size)])

    def close(self) -> None:
        self.group.close()
        self.experiment.mdp.close()


def spec(world: World) -> Spec:
    """What a world shows and takes. Raises `BadRequest` where it cannot run here."""
    arena = world.arena(world.sides, seeds.Episodes(0, "spec"))
    arena.close()
    return arena.spec


def device(name: str) -> torch.device:
    """The device of a config's ``device`` key. Raises `BadRequest` where there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise BadRequest("no CUDA device here; use device=cpu or device=auto", "device")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def train(
    experiment: Experiment, opened: Callable[[], AbstractContextManager[Path]], *, init: Path | str | None = None
) -> dict[str, Any]:
    """Train until the budget is spent; return what result.json holds.

    ``opened`` opens and locks the run directory, and is called once everything else is built, so a request
    that cannot be met leaves nothing behind. A directory that holds a checkpoint is continued from it, exactly.
    ``init`` is another run's directory whose newest policy this one starts from. Raises `BadRequest`,
    `Interrupted` (after a clean save), `NotFinite` and `WorldError` (the last checkpoint stays), OSError where
    the final checkpoint or the result cannot be written.
    """
    run = prepared(experiment, init)
    try:
        with opened() as directory:
            return _Session(run, directory).go()
    finally:
        run.close()


def prepared(experiment: Experiment, init: Path | str | None = None) -> Run:
    """A new run, with the newest policy of the run in ``init``. Raises `BadRequest` where that does not fit."""
    run = Run(experiment)
    try:
        if init is not None:
            _begin_from(run, Path(init))
    except BaseException:
        run.close()
        raise
    return run


def _begin_from(run: Run, directory: Path) -> None:
    found = checkpoint.newest(directory)
    if found is None:
        raise BadRequest(f"{directory} holds no checkpoint", "init")
    try:
        run.learner.load_policy(found[1]["run"]["learner"])
    except (KeyError, ValueError) as error:
        raise BadRequest(f"the policy of {directory} does not fit: {error}", "init") from error


class _Session:
    """A run in its directory, from (re)start to end."""

    def __init__(self, run: Run, directory: Path) -> None:
        self.run, self.directory = run, directory
        e = run.experiment
        usual = e.mdp.budget
        self.limit = e.budget.steps or usual
        self.eval_every = usual // 10 if e.eval.every is None else e.eval.every
        self.save_every = usual // 20 if e.checkpoint.every is None else e.checkpoint.every
        self.saved = -1  # step of the newest checkpoint
        self.judged: tuple[int, Metrics] | None = None  # the newest evaluation
        recorded = None
        found = checkpoint.newest(directory)
        if found is not None:
            _, state = found
            run.load_state_dict(state["run"])
            self.saved, recorded = run.steps, state["recorder"]
            self.judged = None if state["judged"] is None else (state["judged"]["step"], state["judged"]["metrics"])
        self.recorder = Recorder(directory, e.record, msgspec.to_builtins(e), recorded)
        left = None if e.budget.seconds is None else max(e.budget.seconds - self.recorder.time, 0.0)
        self.terminal = Terminal(self.limit, left, run.steps)

    def go(self) -> dict[str, Any]:
        with self.recorder, self.terminal, _signals(self.terminal.notice) as caught:
            while not self._over():
                self._advance(caught)
            if not self._judged_now():
                self._judge()
                self._save()  # again, where a stop at the very end had saved it unjudged
            elif self.saved != self.run.steps:
                self._save()
            result = self._result()
            write_json(self.directory / "result.json", result)
        summary(result, self.directory)
        return result

    def _advance(self, caught: list[int]) -> None:
        """One batch, and what is due after it. Raises `Interrupted`, saved, where a signal was caught."""
        before = self.run.steps
        self._write(self.run.iterate())
        if _due(self.eval_every, before, self.run.steps) or (self._over() and not caught):
            self._judge()  # before saving, so that the checkpoint knows it
        if caught:
            self._save()
            self.recorder.close()  # here, so that no sink takes it for a failure
            raise Interrupted(caught[0], self.run.steps, self.directory)
        if _due(self.save_every, before, self.run.steps) or self._judged_now():
            self._save_if_possible()

    def _over(self) -> bool:
        budget = self.run.experiment.budget
        return (
            self.run.steps >= self.limit
            or (budget.seconds is not None and self.recorder.time >= budget.seconds)
            or (budget.fitness is not None and self.judged is not None and fitness(self.judged[1]) >= budget.fitness)
        )

    def _judged_now(self) -> bool:
        return self.judged is not None and self.judged[0] == self.run.steps

    def _judge(self) -> None:
        self.judged = (self.run.steps, self.run.judge())
        self._write(self.judged[1])

    def _write(self, metrics: Metrics) -> None:
        self.recorder.write(self.run.steps, metrics)
        self.terminal.update(self.run.steps, metrics)

    def _save(self) -> None:
        best = None if self.run.best is None else self.run.best[1]
        judged = None if self.judged is None else {"step": self.judged[0], "metrics": self.judged[1]}
        state = {"run": self.run.state_dict(), "recorder": self.recorder.state_dict(), "judged": judged}
        again, keep = self.saved == self.run.steps, self.run.experiment.checkpoint.keep
        checkpoint.save(self.directory, self.run.steps, state, keep, best, again=again)
        self.saved = self.run.steps

    def _save_if_possible(self) -> None:
        """A full disk costs a warning: the last good checkpoint stays and the run goes on."""
        try:
            self._save()
        except OSError as error:
            log.warning("checkpoint at step %d NOT saved (%s): the last good one stays", self.run.steps, error)

    def _result(self) -> dict[str, Any]:
        """What result.json holds."""
        assert self.judged is not None
        metrics = {name.removeprefix("eval/"): x for name, x in self.judged[1].items()}
        seconds, best = self.recorder.time, self.run.best
        return {
            "steps": self.run.steps,
            "seconds": seconds,
            "steps_per_second": self.run.steps / seconds,
            "fitness": fitness(self.judged[1]),
            "eval": {**metrics, "episodes": self.run.experiment.eval.episodes},
            "best": None if best is None else {"fitness": best[0], "step": best[1]},
        }


def _due(every: int, before: int, after: int) -> bool:
    """Whether a multiple of ``every`` lies in (before, after]; 0 never."""
    return every > 0 and after // every > before // every


@contextmanager
def _signals(notice: Callable[[str], None]) -> Iterator[list[int]]:
    """Collects the first SIGINT or SIGTERM for the next boundary; a second one leaves at once."""
    caught: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if caught:
            os._exit(128 + number)  # the last complete checkpoint is intact by construction
        caught.append(number)
        notice("evorl: will save and stop after this batch; a second signal leaves at once")

    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
