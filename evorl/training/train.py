"""The training run of one learner: collect, update, evaluate, and the state for checkpoints."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.begin import begin
from evorl.mdp.core import Spec, StateDict, World, WorldError
from evorl.mdp.forms import Mismatch
from evorl.mdp.reward_terms import KEY as REWARD
from evorl.mdp.reward_terms import Rewarded
from evorl.nets.compiled import require_compiler
from evorl.opponents.core import Pooled
from evorl.opponents.pool import Opponent, Pool
from evorl.opponents.sampler import OpposedLockstep, OpposedSampler, RunPolicy, as_opponents, forms
from evorl.record import checkpoint
from evorl.rl.core import Episode, Learner, Metrics, NotFinite, finite_means, optimizers
from evorl.rl.data_parallel import Leader, Parallel
from evorl.rl.evaluation import evaluate_policy, fitness
from evorl.rl.policy_gradient import PolicyGradient
from evorl.rl.sampler import Sampler
from evorl.rl.sources import Source, source
from evorl.training.core import Progress
from evorl.training.experiment import Experiment
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest, wrong_data
from evorl.util.saved import restore, saved

COUNTERS = ("steps", "iteration", "updates", "episodes")
WINDOW = 100  # finished episodes that train/return averages over, less those that would cut a game in two


class Run:
    """One learner, its samplers and its counters: everything that a checkpoint holds."""

    due = ended = whole = False

    def __init__(self, experiment: Experiment, others: Sequence[RunPolicy] = ()) -> None:
        """``others``: the runs in the pool of opponents. Raises `BadRequest`."""
        hyper = experiment.rl
        self.experiment = experiment
        self.steps = 0  # environment steps
        self.iteration = 0  # batches learned from
        self.updates = 0  # gradient steps
        self.episodes = 0  # finished
        self.window: dict[str, deque[float]] = {}  # metrics of the last finished episodes
        self.best: tuple[float, int] | None = None  # fitness and step of the best evaluation
        self._left: list[dict[str, Any]] = []  # rows of opponents.jsonl of this iteration
        where = device(experiment.device)
        devices = learner_devices(where, hyper.learners)
        if hyper.compile:
            require_compiler(where)
        # members in other processes act on the CPU; workers are forked before this process has threads
        here = where if experiment.cluster.in_process else torch.device("cpu")
        opponents, world = experiment.opponents, experiment.training_world
        kinds = forms(hyper, others)
        kind = partial(OpposedSampler, opponents, kinds.further) if isinstance(opponents, Pooled) else Sampler
        member = partial(kind, world, hyper, experiment.seed, here)
        self.spec = spec(world)  # before other questions to the world: it says which key is refused
        sides = experiment.learning_sides
        self.window_size = max(WINDOW - WINDOW % sides, sides)
        make = partial(hyper.learner, self.spec, experiment.seed)
        self.leader: Leader | None = None
        self._open = ExitStack()
        self._open.callback(experiment.mdp.close)
        try:
            if hyper.learners > 1:  # they are forked first, too
                self.leader = Leader(make, devices, hyper.threads)
                self._open.callback(self.leader.close)
            self.group = experiment.cluster.spawn(member, hyper.members, (BadRequest, NotFinite, Mismatch, WorldError))
            self._open.callback(self.group.close)
            torch.set_num_threads(hyper.threads)
            self.learner = make(devices[0])
            if self.leader is not None:
                self.leader.lead(cast(Parallel, self.learner))
            self.source = self._source(as_opponents(others, kinds.of_others))
        except BaseException:
            self.close()
            raise

    def _source(self, others: Sequence[Opponent]) -> Source:
        hyper, opponents = self.experiment.rl, self.experiment.opponents
        if isinstance(opponents, Pooled):
            storage = hyper.storage(self.spec, hyper.members * hyper.slots)
            return OpposedLockstep(self.group, storage, Pool(opponents, others))
        return source(self.group, hyper, self.spec)

    def top_individuals(self) -> list[dict[str, Any]]:
        return []

    def opponents(self) -> list[dict[str, Any]]:
        return self.source.pool.rows(self.steps) if isinstance(self.source, OpposedLockstep) else []

    def iterate(self) -> Progress:
        """Collect batches and learn from them, for `Hyper.rounds` times. Raises `NotFinite`, which names the step."""
        began, clock = self.steps, Clock()
        statistics: dict[str, list[Tensor]] = {}
        self._left = []
        try:
            for _ in range(self.experiment.rl.rounds):
                metrics = self._collect_and_learn(clock, statistics)
            metrics |= finite_means(statistics, self.updates)
        except NotFinite as error:
            raise NotFinite(f"{error} (iteration {self.iteration}, after {self.steps} environment steps)") from None
        clock.lap("speed/update_seconds")
        metrics |= self.group.counters()
        if self.leader is not None:
            metrics |= self.leader.metrics()
        metrics |= {name: float(np.mean(numbers)) for name, numbers in self.window.items()}
        metrics |= {
            "train/episodes": self.episodes,
            "optimizer/updates": self.updates,
            "speed/steps_per_second": (self.steps - began) / sum(clock.laps.values()),
            **clock.laps,
        }
        return Progress(metrics, opponents=self._left)

    def _collect_and_learn(self, clock: Clock, statistics: dict[str, list[Tensor]]) -> Metrics:
        """Collect one batch and learn from it; add the statistics of the gradient steps."""
        taken = self.source.take(self.learner, self.steps, self.iteration)
        clock.lap("speed/sample_seconds")
        learned = self.learner.update(taken.update_input, self.steps, self.iteration)
        clock.lap("speed/update_seconds")
        self.steps += taken.cost
        self.iteration += 1
        self.updates += learned.steps
        self._remember(taken.episodes)
        self._left += taken.left
        for name, numbers in learned.statistics.items():
            statistics.setdefault(name, []).extend(numbers)
        return {**learned.metrics, **taken.metrics}

    def _remember(self, episodes: list[Episode]) -> None:
        names = self.spec.rewards
        self.episodes += len(episodes)
        for episode in episodes:
            numbers = {"train/return": episode.ret, "train/episode_length": episode.length}
            if len(names) > 1:
                numbers |= {f"train/return_{n}": x for n, x in zip(names, episode.rewards, strict=True)}
            numbers |= {f"train/{name}": x for name, x in episode.results.items()}
            for name, x in numbers.items():
                self.window.setdefault(name, deque(maxlen=self.window_size)).append(x)

    def evaluate(self) -> Metrics:
        """Evaluate the present policy on the same seeds every time. Raises `NotFinite`, which names the step."""
        metrics = evaluated(self.learner, self.experiment, self.steps)
        if self.best is None or fitness(metrics) > self.best[0]:
            self.best = (fitness(metrics), self.steps)
        return metrics

    def fitness(self, evaluated: Metrics | None) -> float | None:
        return None if evaluated is None else fitness(evaluated)

    def result(self) -> dict[str, Any]:
        return {"best": best_evaluation(self.best)}

    def state_dict(self) -> StateDict:
        return {
            **saved(self, COUNTERS),
            "best": None if self.best is None else list(self.best),
            "window": {name: list(numbers) for name, numbers in self.window.items()},
            "learner": self.learner.state_dict(), "source": self.source.state_dict(),
            "actors": {str(i): state for i, state in enumerate(self.group.states())},
        }  # fmt: skip

    def appended_rows(self) -> StateDict:
        return {"learner": self.learner.appended_rows()}

    def load_state_dict(self, state: StateDict) -> None:
        restore(self, COUNTERS, state)
        self.best = None if state["best"] is None else (state["best"][0], state["best"][1])
        self.window = {name: deque(numbers, maxlen=self.window_size) for name, numbers in state["window"].items()}
        if not all(isinstance(x, int | float) for numbers in self.window.values() for x in numbers):
            raise TypeError("the last episodes have what is no number")
        self.learner.load_state_dict(state["learner"])
        self.source.load_state_dict(state["source"])
        self.group.restore([state["actors"][str(i)] for i in range(self.group.size)])

    def close(self) -> None:
        self._open.close()


def best_evaluation(best: tuple[float, int] | None) -> dict[str, Any] | None:
    """What result.json says of the best evaluation. It is the highest of several noisy ones, so partly luck."""
    return None if best is None else {"fitness": best[0], "step": best[1], "selected_by": "highest evaluation"}


class Clock:
    """Seconds by what they were spent on."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        """Count the time since the lap before under this name."""
        time_s = time.monotonic()
        self.laps[name] = self.laps.get(name, 0.0) + time_s - self._last
        self._last = time_s


def spec(world: World) -> Spec:
    """Return the `Spec` of a world. Raises `BadRequest` if it cannot run here, or shows what it does not declare."""
    with errors_under_mdp():
        arena = begin(world, world.sides, seeds.Episodes(0, "spec"))
    arena.close()
    return arena.spec


@contextmanager
def errors_under_mdp() -> Iterator[None]:
    """Put the keys of a world that begins under ``mdp``; what it shows and does not declare is an error of its id."""
    try:
        yield
    except BadRequest as error:
        raise error if (error.key or "").startswith(f"{REWARD}.") else error.under("mdp") from None
    except Mismatch as error:
        raise BadRequest(str(error), "mdp.id") from None


def check_rewards(experiment: Experiment) -> None:
    """Raise `BadRequest` for results that ``reward`` names and the world does not report."""
    if isinstance(world := experiment.training_world, Rewarded):
        world.check_results()


def check_learner(learner: Learner) -> None:
    """Raise `BadRequest` for settings under which a learner would learn nothing. It may still act."""
    if isinstance(learner, PolicyGradient):
        learner.check_minibatches()


def policy_spec(experiment: Experiment) -> Spec:
    """Return the `Spec` of a policy in evaluations, which has the rewards of its training. Raises `BadRequest`."""
    return experiment.reward.spec(spec(experiment.mdp.evaluation_world()))


def device(name: str) -> torch.device:
    """Return the torch device of the ``device`` key. Raises `BadRequest` if it is not available."""
    # ask the driver's library, not the driver: processes that are forked later could not use the GPUs
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    if name == "cuda" and not torch.cuda.is_available():
        raise BadRequest("no CUDA device here; use device=cpu or device=auto", "device")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def learner_devices(where: torch.device, learners: int) -> list[torch.device]:
    """Return the device of each learner: a GPU of its own, or the CPU. Raises `BadRequest` if there are too few."""
    if where.type == "cpu" or learners == 1:
        return [where] * learners
    if learners > (count := torch.cuda.device_count()):
        raise BadRequest(
            f"each takes a GPU of its own, and there are {count}; device=cpu takes any number", "rl.learners"
        )
    if torch.cuda.is_initialized():
        raise BadRequest(
            "this process has used its GPUs for another run already; begin each run in a process of its own "
            "(hydra/launcher=ray)", "rl.learners",
        )  # fmt: skip
    return [torch.device("cuda", rank) for rank in range(learners)]


@dataclass(frozen=True)
class Start:
    """The run whose policy a new run starts from (``init=RUN_DIR``)."""

    directory: Path
    optimizer: bool = False
    """Whether to take the optimiser's state as well."""
    step: int | None = None
    """Step of the checkpoint to take; None means the newest."""

    @cached_property
    def past(self) -> StateDict:
        """The state of that run, without the rows of its replay. Raises `BadRequest` if it has no such checkpoint."""
        try:
            return checkpoint.run_state(self.directory, "latest" if self.step is None else self.step)[1]
        except BadRequest as error:
            raise error if error.key else error.under("init") from None


def new_run(experiment: Experiment, init: Start | None = None, others: Sequence[RunPolicy] = ()) -> Run:
    """Make a new run, from another run's policy if ``init`` is given. Raises `BadRequest` if that does not fit."""
    check_rewards(experiment)  # it closes the world that it played in
    run = Run(experiment, others)
    try:
        check_learner(run.learner)
        experiment.rl.check_memory(run.spec, experiment.budget.steps or experiment.mdp.budget)
        if init is not None:
            _load_start(run, init)
    except BaseException:
        run.close()
        raise
    return run


def evaluated(learner: Learner, experiment: Experiment, steps: int) -> Metrics:
    """Evaluate a policy after so many environment steps. Raises `NotFinite`, which names them."""
    try:
        e = experiment.eval
        return evaluate_policy(learner, experiment.mdp, experiment.seed, e.episodes, e.max_steps)
    except NotFinite as error:
        raise NotFinite(f"{error} (in the evaluation after {steps} environment steps)") from None


def _load_start(run: Run, init: Start) -> None:
    load_policy(run.learner, init)
    if init.optimizer:
        state, own = init.past["learner"], run.learner.state_dict()
        if not optimizers(own).keys() <= state.keys():  # of an exported policy, or of another algorithm
            raise BadRequest(f"{init.directory} holds no state of this optimiser", "init_optimizer")
        with _explained(init):
            run.learner.load_state_dict({**own, **{name: state[name] for name in optimizers(own)}})


def load_policy(learner: Learner, init: Start) -> None:
    """Load another run's policy. Raises `BadRequest` if it does not fit."""
    with _explained(init):
        learner.load_policy(init.past["learner"])


@contextmanager
def _explained(init: Start) -> Iterator[None]:
    with wrong_data(lambda why: BadRequest(f"the policy of {init.directory} does not fit: {why}", "init")):
        yield
