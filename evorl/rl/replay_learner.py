"""The base of learners with a replay: what is appended, how many gradient steps are due, and their minibatches.

`Learner.update` appends the new fragment to the replay. Then it takes as many gradient steps as the limiter allows,
so the learner runs in every loop that a policy gradient runs in. Actors with critics (`evorl.rl.off_policy`) and
learners of action values (`evorl.rl.dqn`) build on it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.core import Action, Box, Discrete, Spec, StateDict
from evorl.nets.random_features import RandomFeatures
from evorl.nets.trees import Tree, mapped, unbound
from evorl.replay.memory import check_memory, uncompressed
from evorl.replay.packed import check_compressible
from evorl.replay.samplers.core import Memory, Sampler
from evorl.replay.samplers.nearest import Nearest
from evorl.replay.samplers.registry import KINDS, Sampling, TransitionSamplers, options_of, sole
from evorl.replay.shared import ring_bytes
from evorl.replay.storage import Array, Fragment, Numbers, Replay, Shape, Storage
from evorl.rl.batch import TransitionBatch
from evorl.rl.core import Hyper, Learned, Metrics
from evorl.rl.network_learner import NetworkLearner
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.heartbeat import heartbeat
from evorl.util.schedule import Schedule
from evorl.util.schedule import value as scheduled
from evorl.util.types import Count, Natural, Positive

CHUNK = 64  # gradient steps whose minibatches are drawn and gathered at once


@dataclass(frozen=True, kw_only=True)
class ReplayHyper(Hyper):
    """Hyper-parameters of every learner with a replay of transitions."""

    parallel: ClassVar[bool] = True
    sequences: ClassVar[bool] = False
    """Whether a gradient step learns from sequences, as a recurrent network needs."""

    slots: Count = 1
    horizon: Count = 32
    lr: Schedule = 1e-3
    adam_epsilon: Positive = 1e-8
    max_grad_norm: Positive | None = None
    capacity: Count = 1_000_000
    """Transitions that the replay holds."""
    batch: Count = 256
    """Transitions in a gradient step."""
    samples_per_step: Positive | None = None
    """Transitions to learn from for each one that is collected; null: as many as a gradient step learns from, one such
    step per decision."""
    warm_up: Natural = 10_000
    """Decisions before the first gradient step."""
    warm_up_actions: Literal["uniform", "policy"] = "uniform"
    """Actions of training episodes during the warm-up."""
    n_step: Count = 1
    """Rewards that a target sums before it bootstraps."""
    compress: bool = False
    """Keep observations in bytes compressed by LZ4; needs the extra lz4."""
    sampling: Sampling = "uniform"
    """The sampler that chooses what to replay (docs/samplers.md)."""
    replay: TransitionSamplers = field(default_factory=TransitionSamplers)
    """Options of the samplers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sole(self.sampling, self.replay)
        decisions = self.members * self.slots * self.horizon
        if 2 * decisions > self.capacity:
            least = 2 * decisions
            raise BadRequest(f"must be at least {least}: members x slots x horizon is at most half of it", "capacity")
        if self.samples > self.capacity:
            raise BadRequest(f"must be at least {self.samples}, what a gradient step learns from", "capacity")
        if self.net.lstm and not self.sequences:
            raise BadRequest("single transitions cannot train a recurrent network; rl=r2d2 can", "net.lstm")
        if self.learners > self.batch:
            raise BadRequest(f"must be at most rl.batch, {self.batch}: each takes its share of a minibatch", "learners")

    @property
    def sampler(self) -> type[Sampler]:
        return KINDS.kind_of(sole(self.sampling, self.replay))

    def imports(self) -> tuple[str, ...]:
        return (*super().imports(), KINDS.root_of(sole(self.sampling, self.replay)))

    @property
    def samples(self) -> int:
        """Transitions that a gradient step learns from."""
        return self.batch

    def storage(self, spec: Spec, slots: int) -> TransitionBatch:
        return TransitionBatch.empty(spec, self.horizon, slots, self.net.lstm)

    def check_memory(self, spec: Spec, steps: int, copies: int = 1) -> None:
        self.check_ring(spec, Shape(self.capacity, self.members * self.slots, lstm=self.net.lstm), steps, copies)

    def check_ring(self, spec: Spec, shape: Shape, steps: int, copies: int = 1) -> None:
        """Raise `BadRequest` where a replay of this shape does not fit (`check_memory`)."""
        shape = shape._replace(capacity=min(shape.capacity, steps))
        needed = ring_bytes(uncompressed(spec, self.compress), shape)
        check_memory(needed, spec, "rl.capacity", f"{shape.capacity} transitions", copies=copies)


H = TypeVar("H", bound=ReplayHyper, covariant=True)


class Reading(NamedTuple):
    """What a gradient step may read of a replay."""

    storage: Storage
    length: int  # transitions that existed
    oldest: int  # number of the oldest one


class Transitions(NamedTuple):
    """A minibatch of N transitions."""

    inputs: tuple[Tensor, ...]  # each [N, ...]
    action: Tensor  # [N, K]
    reward: Tensor  # [N, R], the discounted sum of ``n_step``
    discount: Tensor  # [N, R] of the value after these; 0 after a terminal state
    following: tuple[Tensor, ...]  # the inputs after these, each [N, ...]
    legal: Tensor | None  # bool [N, L]: the actions that are legal there
    weight: Tensor | None = None  # [N] of the loss, with priorities


class ReplayLearner(NetworkLearner[H]):
    """A network, and a replay that its gradient steps sample."""

    update_input: ClassVar[type] = TransitionBatch

    def __init__(self, hyper: H, spec: Spec, seed: int, device: torch.device) -> None:
        super().__init__(hyper, spec, seed, device)
        if hyper.compress:
            check_compressible(spec)
        self.gradient_steps = 0
        self._allowed_by_others = 0  # gradient steps, where this learner goes on from another's state with other keys
        self.drawn: Numbers = np.zeros((0, 0), np.int64)  # of the gradient steps being taken

    @cached_property
    def replay(self) -> Replay:
        """Made when it is first needed: learners that only act have none."""
        h = self.hyper
        return Replay(self.spec, Shape(h.capacity, h.members * h.slots, lstm=h.net.lstm), compress=h.compress)

    @cached_property
    def sampler(self) -> Sampler:
        """Made when it is first needed, as the replay is."""
        h, name = self.hyper, sole(self.hyper.sampling, self.hyper.replay)
        return KINDS.kind_of(name)(options_of(name, h.replay), h.capacity, h.batch)

    @cached_property
    def random_features(self) -> RandomFeatures:
        """What attentive sampling compares. Made when it is first needed."""
        return RandomFeatures(self.spec, self.hyper.net, self.seed, self.device)

    @property
    def plays_uniformly(self) -> bool:
        """Whether training episodes have uniform random actions now."""
        h = self.hyper
        return h.warm_up > 0 and h.warm_up_actions == "uniform" and self.gradient_steps == 0

    # -------------------------------------------------------------- learning

    def update(self, batch: TransitionBatch, step: int, iteration: int) -> Learned:
        rate = scheduled(self.hyper.lr, step)
        self.lr.fill_(rate)
        self.replay.append(_fragment(batch))
        if self.moments is not None:
            self.moments.update(tuple(x[:-1] for x in batch.inputs))
        metrics: Metrics = {"optimizer/lr": rate, "replay/size": float(min(self.replay.count, self.hyper.capacity))}
        if isinstance(self.sampler, Nearest):
            metrics["replay/candidates"] = self.sampler.factor(self.gradient_steps)
        self.sampler.advance(step)
        due = self._steps_due()
        statistics = self._learn(due)
        taken = self.gradient_steps * self.hyper.samples
        metrics["replay/samples_per_step"] = taken / max(self.replay.count - self.hyper.warm_up, 1)
        return Learned(due, metrics, statistics)

    def _steps_due(self) -> int:
        """The limiter: gradient steps that the collected transitions allow and that were not taken yet."""
        return max(self._steps_allowed() - self.gradient_steps, 0)

    def _steps_allowed(self) -> int:
        """Gradient steps that the transitions collected so far allow, those of other keys included."""
        h = self.hyper
        wanted = h.samples if h.samples_per_step is None else h.samples_per_step
        return int((self.replay.count - h.warm_up) * wanted / h.samples) + self._allowed_by_others

    def _learn(self, due: int) -> dict[str, list[Tensor]]:
        """Take ``due`` gradient steps; return their statistics."""
        statistics: dict[str, list[Tensor]] = {}
        while due:
            heartbeat()
            count = min(due, self.chunk)
            for name, numbers in self._take_steps(count).items():
                statistics.setdefault(name, []).extend(numbers)
            due -= count
        return statistics

    @property
    def chunk(self) -> int:
        """Gradient steps whose minibatches are drawn and gathered at once."""
        return CHUNK

    def _take_steps(self, count: int) -> dict[str, list[Tensor]]:
        """Take gradient steps whose minibatches are drawn at once; return their statistics."""
        stats: dict[str, list[Tensor]] = {}
        reading = Reading(self.replay, self.replay.count, self.replay.oldest(self.replay.count))
        minibatches = self.minibatches(reading, self.gradient_steps, count)
        for noise, minibatch in unbound((self.draw_noise(self.gradient_steps, count), minibatches)):
            for name, x in self.gradient_step(self.gradient_steps, noise, minibatch).items():
                stats.setdefault(name, []).append(x)
            self.gradient_steps += 1
        if self.sampler.weighs:
            self._learned(torch.stack(stats.pop("error")).cpu().numpy())
        return stats

    def _learned(self, error: Array) -> None:
        """Tell the sampler the errors [minibatches, batch] of what was drawn, when its gradient steps are taken."""
        self.sampler.learned(self.drawn, error)

    def minibatches(self, reading: Reading, first: int, count: int, *words: int | str) -> Any:
        """The minibatches of gradient steps ``first`` and later, a tree of tensors [count, ...].

        A minibatch is a function of the seed, what it is for (``words``), the number of its gradient step, and what of
        the replay it may read.
        """
        numbers = self._numbers(reading, first, count, *words)
        minibatches, self.drawn = self._read(reading, numbers, count), numbers.reshape(count, -1)
        weight = self.sampler.weights(self.drawn)
        return minibatches if weight is None else minibatches._replace(weight=torch.from_numpy(weight).to(self.device))

    def _read(self, reading: Reading, numbers: Numbers, count: int) -> Any:
        """The `Transitions` [count, N, ...] of these numbers."""
        gamma = self.gamma.numpy().astype(np.float64)
        rows = reading.storage.read(numbers, reading.length, gamma, self.hyper.n_step)
        inputs, following = tuple(rows.inputs), tuple(rows.next_inputs)
        read: Tree = (inputs, rows.action, rows.reward, rows.discount, following, rows.next_legal)
        return Transitions(*mapped(lambda x: torch.from_numpy(x).unflatten(0, (count, -1)).to(self.device), read))

    def _numbers(self, reading: Reading, first: int, count: int, *words: int | str) -> Numbers:
        key, (storage, length, oldest) = seeds.key(self.seed, "replay", *words), reading
        memory = RingMemory(storage.shape.rows, length, oldest, length - oldest, storage, self)
        return self.sampler.draw(memory, key, range(first, first + count), self.hyper.batch).reshape(-1)

    @abstractmethod
    def draw_noise(self, first: int, count: int, *words: int | str) -> Tensor:
        """Noise [count, ...] for gradient steps from ``first`` on, keyed one by one."""

    @abstractmethod
    def gradient_step(self, number: int, noise: Tensor, minibatch: Any) -> dict[str, Tensor]:
        """Take the gradient step ``number`` on a minibatch; return its statistics, each []."""

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        own = {
            "gradient_steps": self.gradient_steps, "replay": self.replay.state_dict(),
            "limiter": {"transitions": self.replay.count, "allowed": self._steps_allowed()},
        }  # fmt: skip
        return {**super().state_dict(), **own, **self.sampler.state_dict()}

    def appended_rows(self) -> StateDict:
        return {"replay": self.replay.appended_rows()}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.gradient_steps = state["gradient_steps"]
        self.replay.load_state_dict(state["replay"])
        self._allowed_by_others = 0
        known = state.get("limiter")  # missing in runs of older versions
        if known is not None and known["transitions"] == self.replay.count and known["allowed"] > 0:
            self._allowed_by_others = known["allowed"] - self._steps_allowed()
        self.sampler.load_state_dict(state)


@dataclass(frozen=True)
class RingMemory(Memory):
    """The readable transitions of a ring as a sampler sees them."""

    storage: Storage
    learner: ReplayLearner[ReplayHyper]

    def current(self, step: int) -> int:
        """The gradient steps take the states of the newest fragment in turn, so each of its decisions counts, whatever
        the horizon and the number of slots."""
        h = self.learner.hyper
        return self.count - 1 - step % min(h.members * h.slots * h.horizon, self.held)

    def features(self, items: Numbers) -> Array:
        """Random features [N, 1, F] of the states that transitions began in."""
        states = tuple(torch.from_numpy(x) for x in self.storage.states(items))
        features: Array = self.learner.random_features(states).numpy()[:, None]
        return features


def follow(target: Tensor, source: Tensor, tau: float) -> None:
    """target <- (1 - tau) target + tau source, in place (Lillicrap et al. 2016, algorithm 1)."""
    target.lerp_(source, tau)


def gap(phi: Tensor, target: Tensor) -> Tensor:
    """Norm of the difference between networks and their targets, in units of the networks' norm, []."""
    distance: Tensor = (target - phi).norm() / phi.norm()
    return distance


def made_for(action: Action) -> str:
    """Which learners take an action, where one with a replay does not: those that are made for it, and rl=ppo."""
    if isinstance(action, Discrete):
        return "rl=dqn is made for it, and rl=ppo takes any"
    if isinstance(action, Box) and np.isfinite([action.low, action.high]).all():
        return "rl=td3 and rl=sac are made for it, and rl=ppo takes any"
    return "rl=ppo takes any"


def _fragment(batch: TransitionBatch) -> Fragment:
    column, first = batch.origin.numpy()
    return Fragment(
        [x.numpy() for x in batch.inputs],
        None if batch.legal is None else batch.legal.numpy(),
        batch.action.numpy(),
        batch.reward.numpy(),
        batch.done.numpy(),
        batch.terminated.numpy(),
        [x.numpy() for x in batch.final_inputs],
        None if batch.final_legal is None else batch.final_legal.numpy(),
        column,
        first,
        None if batch.carries is None else batch.carries.numpy(),
    )
