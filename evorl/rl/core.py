"""The types that all learners share: batches, episodes, base hyper-parameters and the `Learner` protocol.

Letters in shapes: T decisions of a slot in a batch, B slots (all members side by side), R named rewards,
K action components, L legal-mask entries.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from evorl.mdp.core import Box, Spec, heads
from evorl.nets.policy import Net
from evorl.util.errors import BadRequest
from evorl.util.schedule import Schedule
from evorl.util.typed import unknown
from evorl.util.types import Count, Fraction, Positive, StateDict, Threads

Metrics = dict[str, float]


class Decision(NamedTuple):
    """Decisions of one policy call, one row per slot. They are inference tensors: copy them before autograd."""

    action: Tensor  # [B, K] in the policy's own units; what the learner stores
    played: Tensor  # [B, K] what the world receives
    log_prob: Tensor  # [B]
    value: Tensor  # [B, R]
    carry: Tensor | None  # [2, B, H]
    policy: Tensor | None = None  # [B, P] the policy itself, where the learner's batches hold it
    features: Tensor | None = None  # [B, F] what the policy's head saw, likewise


class Learned(NamedTuple):
    """The result of one update."""

    steps: int  # optimiser steps
    metrics: Metrics
    statistics: Mapping[str, Sequence[Tensor]] = MappingProxyType({})
    """Numbers [] of the optimiser steps, still on the device; a row of metrics holds their means (`finite_means`)."""


class Episode(NamedTuple):
    """One finished episode."""

    ret: float  # undiscounted, the sum over all rewards
    length: float  # environment steps; decisions where the world reports none
    rewards: tuple[float, ...]  # the return of each named reward
    results: dict[str, float]  # numbers that the world reports


@dataclass
class Batch:
    """T decisions of each of B slots, in preallocated storage that the next collection overwrites.

    ``next_value`` is the value of what followed a decision: of the next state within an episode, of the
    state where a truncated episode was cut, 0 after a termination. ``done`` cuts the recursion either way.
    """

    inputs: tuple[Tensor, ...]  # each [T+1, B, ...]; the last row is the state to bootstrap from
    legal: Tensor | None  # bool [T+1, B, L]
    start: Tensor  # bool [T+1, B]: an episode's first decision
    action: Tensor  # int64 or float32 [T, B, K]
    log_prob: Tensor  # [T, B] under the policy that acted
    value: Tensor  # [T+1, B, R]
    final_value: Tensor  # [T, B, R]: where truncated, the value of the state the episode was cut at; else 0
    reward: Tensor  # [T, B, R]
    done: Tensor  # bool [T, B]
    carry: Tensor | None  # [2, B, H] before the first decision
    # for a replay only:
    carries: Tensor | None = None  # [T, B, 2, H] before each decision, zero where it begins an episode
    terminated: Tensor | None = None  # bool [T, B]: the episode ended in a terminal state
    final_inputs: tuple[Tensor, ...] | None = None  # each [T, B, ...]: where truncated, the state it was cut at
    final_legal: Tensor | None = None  # bool [T, B, L]
    origin: Tensor | None = None  # int64 [2, B]: number of the slot in the run, decisions that it had made before
    # for a replay of whole rollouts only:
    policy: Tensor | None = None  # [T, B, P] the policy that acted (`evorl.nets.distributions.parameters`)
    features: Tensor | None = None  # [T, B, F] its features

    @classmethod
    def empty(
        cls, spec: Spec, horizon: int, slots: int, lstm: int, replay: bool = False, policy: int = 0, features: int = 0
    ) -> Batch:
        """Storage for T = horizon and B = slots; ``replay`` adds what a replay needs, ``policy`` and ``features`` what
        a replay of rollouts needs: P and F."""
        t, b, r = horizon, slots, len(spec.rewards)
        legal = sum(heads(spec.action))
        action = (
            torch.zeros(t, b, len(spec.action.low))
            if isinstance(spec.action, Box)
            else torch.zeros(t, b, len(heads(spec.action)), dtype=torch.int64)
        )

        def states(length: int) -> tuple[Tensor, ...]:
            return tuple(torch.zeros(length, b, *one.shape, dtype=getattr(torch, one.dtype)) for one in spec.inputs)

        return cls(
            inputs=states(t + 1),
            legal=torch.ones(t + 1, b, legal, dtype=torch.bool) if spec.masked else None,
            start=torch.ones(t + 1, b, dtype=torch.bool),
            action=action,
            log_prob=torch.zeros(t, b),
            value=torch.zeros(t + 1, b, r),
            final_value=torch.zeros(t, b, r),
            reward=torch.zeros(t, b, r),
            done=torch.zeros(t, b, dtype=torch.bool),
            carry=torch.zeros(2, b, lstm) if lstm and not replay else None,
            carries=torch.zeros(t, b, 2, lstm) if lstm and replay else None,
            terminated=torch.zeros(t, b, dtype=torch.bool) if replay else None,
            final_inputs=states(t) if replay else None,
            final_legal=torch.ones(t, b, legal, dtype=torch.bool) if replay and spec.masked else None,
            origin=torch.zeros(2, b, dtype=torch.int64) if replay else None,
            policy=torch.zeros(t, b, policy) if policy else None,
            features=torch.zeros(t, b, features) if features else None,
        )

    def fill(self, parts: Sequence[Batch]) -> Batch:
        """Copy the slots of all parts side by side into this storage; return a single part unchanged."""
        if len(parts) == 1:
            return parts[0]
        for name, whole in vars(self).items():
            pieces = [getattr(part, name) for part in parts]
            if isinstance(whole, Tensor):
                torch.cat(pieces, 1, out=whole)
            elif whole is not None:
                for number, one in enumerate(whole):
                    torch.cat([piece[number] for piece in pieces], 1, out=one)
        return self

    @property
    def next_value(self) -> Tensor:
        """The value [T, B, R] of what followed each decision."""
        return torch.where(self.done.unsqueeze(-1), self.final_value, self.value[1:])


@dataclass(frozen=True, kw_only=True)
class Hyper(ABC):
    """Hyper-parameters of every learner; each field is a Hydra key of its ``conf/rl`` file."""

    parallel: ClassVar[bool] = False
    """Whether several learners can share its gradient steps."""
    replays: ClassVar[bool] = False
    """Whether its learners keep experience in a replay."""
    policy_head: ClassVar[bool] = True
    """Whether their network is a policy, whose weights alone can be played (``ec.lifetime=play``)."""
    members: Count = 1
    """Logical shards of the sampling; they decide results, unlike the number of workers."""
    slots: Count = 16
    """Episodes at once in each member."""
    horizon: Count = 128
    """Decisions of each slot in a batch (T)."""
    rounds: Count = 1
    """Batches to collect and learn from in an iteration, which writes one row of metrics.

    The row holds means over the gradient steps of a learner with a replay of transitions, else the numbers of the last
    batch.
    """
    gamma: Fraction | dict[str, Fraction] = 0.99
    """Discount per decision; or one per named reward: {damage: 0.99, win: 1.0}."""
    lr: Schedule = 3e-4
    """Learning rate; or a schedule over environment steps: {start: 3e-4, end: 0, steps: 1e6}."""
    adam_epsilon: Positive = 1e-5
    """Added to the denominator of Adam's steps."""
    max_grad_norm: Positive | None = 0.5
    """Clip gradients to this norm; null: no clipping."""
    normalize_inputs: bool | Literal["whiten"] = False
    """True: shift and scale inputs by running statistics, saved with the policy and frozen in evaluation; whiten: also
    decorrelate the numbers of an input."""
    asynchronous: bool = False
    """Learn from each member's batch when it arrives, while the members play on with the weights they have."""
    max_lag: Count | None = None
    """Asynchronous: drop batches whose weights are more updates old; null: four times the members."""
    threads: Threads = 1
    """Torch threads; part of the experiment, since they change the last bits of large sums."""
    learners: Count = 1
    """Processes that compute gradients, each on its share of a minibatch; they change the last bits, as threads do
    (docs/learners.md)."""
    compile: bool = False
    """Compile the gradient step with torch.compile, once for each size of minibatch (docs/running.md).

    That takes half a minute, and is cached for later runs. It pays for small networks.
    """
    net: Net = field(default_factory=Net)

    def __post_init__(self) -> None:
        if self.learners > 1 and not self.parallel:
            raise BadRequest("this learner takes its gradient steps alone, with learners=1", "learners")
        if self.learners > 1 and self.compile:
            raise BadRequest("a compiled gradient step is one learner's; take learners=1, or compile=false", "learners")

    @property
    def begins(self) -> str:
        """A notice to show before a slow first gradient step; empty if it is not slow."""
        if not self.compile:
            return ""
        return "rl.compile: half a minute for the compiler, unless this machine has kept what it makes"

    def storage(self, spec: Spec, slots: int) -> Batch:
        """Return empty storage for a batch of so many slots."""
        return Batch.empty(spec, self.horizon, slots, self.net.lstm, self.replays)

    def check_memory(self, spec: Spec, steps: int, copies: int = 1) -> None:  # noqa: B027 (most have no replay)
        """Raise `BadRequest` where the replays of so many learners at once do not fit into this machine's memory.

        ``steps``: environment steps of a run, which bound what a replay will hold.
        """

    @abstractmethod
    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        """Build a learner with fresh weights."""

    def per_reward(self, name: str, rewards: tuple[str, ...]) -> Tensor:
        """Return the field ``name`` (gamma or lam) for each named reward, [R]. Raises `BadRequest` on unknown ones."""
        given: float | Mapping[str, float] = getattr(self, name)
        if not isinstance(given, Mapping):
            return torch.full((len(rewards),), float(given))
        for reward in given:
            if reward not in rewards:
                raise unknown(reward, rewards, f"rl.{name}")
        if missing := [reward for reward in rewards if reward not in given]:
            raise BadRequest("a value is needed, as for every reward of the world", f"rl.{name}.{missing[0]}")
        return torch.tensor([float(given[reward]) for reward in rewards])


class Acting(Protocol):
    """The acting side of a learner: one policy, or several stacked ones."""

    spec: Spec

    def carry(self, slots: int) -> Tensor | None:
        """Return the recurrent state [2, B, H] at the start of episodes; None for a memoryless policy."""
        ...

    def act(
        self,
        inputs: tuple[Tensor, ...],
        legal: Tensor | None,
        noise: Tensor,
        carry: Tensor | None,
        start: Tensor | None,
    ) -> Decision:
        """Decide for B rows under the given noise [B, noise_size], in `torch.inference_mode`; zero noise is the
        deterministic policy."""
        ...


class Learner(Acting, Protocol):
    """One policy and its update rule. No loop, no sockets, no files."""

    update_input: ClassVar[type]
    """The type that `update` takes: `Batch`, or what the members compute from one (gradients in A3C)."""

    def weights(self) -> list[Tensor]:
        """Return everything that acting needs, without a copy."""
        ...

    def load_weights(self, weights: list[Tensor]) -> None:
        """Act with another learner's weights from now on."""
        ...

    def to_update_input(self, batch: Batch, step: int) -> Any:
        """Turn a member's batch into the ``update_input`` that it sends; ``step`` drives the schedules."""
        ...

    def update(self, batch: Any, step: int, iteration: int) -> Learned:
        """Learn from an ``update_input``. Raises `NotFinite`.

        ``step``, the environment steps so far, drives the schedules.
        """
        ...

    def state_dict(self) -> StateDict: ...

    def appended_rows(self) -> StateDict:
        """Return the `AppendedRows` of the state under its keys, without the rest; empty if the state has none."""
        ...

    def load_state_dict(self, state: StateDict) -> None: ...

    def load_policy(self, state: StateDict) -> None:
        """Load only what acting needs from a learner's state. Raises ValueError if it does not fit."""
        ...


INHERITED = ("moments", "critic", "policy_target", "alpha")
"""Parts of a learner's state that another run takes over beside the policy, where the learner has them."""


def inherited(state: StateDict) -> StateDict:
    """The `INHERITED` parts of a learner's state."""
    return {name: state[name] for name in INHERITED if name in state}


def optimizers(state: StateDict) -> StateDict:
    """The optimisers in a learner's state: the parts whose names end in ``optimizer``."""
    return {name: part for name, part in state.items() if name.endswith("optimizer")}


class NotFinite(ArithmeticError):
    """A NaN or an infinity; the message names what, where and at which step."""


def finite_means(found: Mapping[str, Sequence[Tensor]], steps: int) -> Metrics:
    """The mean of each statistic. Raises `NotFinite`, which names the number of gradient steps."""
    means = {name: float(torch.stack(list(numbers)).mean()) for name, numbers in found.items()}
    for name, mean in means.items():
        if not math.isfinite(mean):
            raise NotFinite(f"{name} is {mean} in gradient steps up to {steps}")
    return means
