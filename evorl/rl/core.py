"""The types that all learners share: decisions, episodes, base hyper-parameters and the `Learner` protocol.

Letters in shapes are those of `evorl.rl.batch`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from evorl.mdp.core import Spec
from evorl.nets.per_side import Policies
from evorl.nets.policy import Net
from evorl.rl.batch import Batch
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


class Played(NamedTuple):
    """What the world and the next decision need of a `Decision`. They are inference tensors, too."""

    played: Tensor  # [B, K]
    carry: Tensor | None  # [2, B, H]


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


@dataclass(frozen=True, kw_only=True)
class Hyper(ABC):
    """Hyper-parameters of every learner; each field is a Hydra key of its ``conf/rl`` file."""

    parallel: ClassVar[bool] = False
    """Whether several learners can share its gradient steps."""
    per_side: ClassVar[bool] = False
    """Whether sides of a game can have networks of their own."""
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
    """Compile the gradient step (AOTInductor), once for each size of minibatch (docs/running.md).

    That takes half a minute, and is cached for later runs. It pays for small networks.
    """
    policies: Policies = "shared"
    """All sides of a game share a network, or each has its own, or groups of sides have: [[0],[1,2]]
    (docs/opponents.md)."""
    net: Net = field(default_factory=Net)

    def __post_init__(self) -> None:
        if self.policies != "shared" and not self.per_side:
            raise BadRequest("this learner has one network for all sides; rl=ppo, a2c, a3c, reinforce can", "policies")
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

    def imports(self) -> tuple[str, ...]:
        """Return the root modules of what its values choose, beside its class: of its encoder, of samplers."""
        return (self.net.root,)

    @abstractmethod
    def storage(self, spec: Spec, slots: int) -> Batch:
        """Return empty storage for a batch of so many slots, of the kind that the learner takes."""

    def check_memory(self, spec: Spec, steps: int, copies: int = 1) -> None:  # noqa: B027 (most have no replay)
        """Raise `BadRequest` where the replays of so many learners at once do not fit into this machine's memory.

        ``steps``: environment steps of a run, which bound what a replay will hold.
        """

    @abstractmethod
    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        """Build a learner with fresh weights."""

    def per_reward(self, name: str, rewards: tuple[str, ...]) -> Tensor:
        """Return the field ``name`` (gamma or lam) for each named reward, [R]. Raises `BadRequest` on unknown ones."""
        value: float | Mapping[str, float] = getattr(self, name)
        if not isinstance(value, Mapping):
            return torch.full((len(rewards),), float(value))
        for reward in value:
            if reward not in rewards:
                raise unknown(reward, rewards, f"rl.{name}")
        if missing := [reward for reward in rewards if reward not in value]:
            raise BadRequest("a value is needed, as for every reward of the world", f"rl.{name}.{missing[0]}")
        return torch.tensor([float(value[reward]) for reward in rewards])


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


@runtime_checkable
class Playing(Protocol):
    """What a policy may have beside `Acting.act`."""

    def play(self, *arguments: Any) -> Played:
        """Decide as `act` does by the same arguments, without what only learning needs: values, log-probabilities."""
        ...


def play_of(policy: Acting) -> Callable[..., Played | Decision]:
    """How a policy decides where its actions are all that is asked for."""
    return policy.play if isinstance(policy, Playing) else policy.act


class Learner(Acting, Protocol):
    """One policy and its update rule. No loop, no sockets, no files."""

    update_input: ClassVar[type]
    """The type that `update` takes: a `Batch`, or what the members compute from one (gradients in A3C)."""

    def weights(self) -> list[Tensor]:
        """Return everything that acting needs, without a copy."""
        ...

    def load_weights(self, weights: list[Tensor]) -> None:
        """Act with another learner's weights from now on."""
        ...

    def to_update_input(self, batch: Any, step: int) -> Any:
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


def finite_means(statistics: Mapping[str, Sequence[Tensor]], steps: int) -> Metrics:
    """The mean of each statistic. Raises `NotFinite`, which names the number of gradient steps."""
    means = {name: float(torch.stack(list(numbers)).mean()) for name, numbers in statistics.items()}
    for name, mean in means.items():
        if not math.isfinite(mean):
            raise NotFinite(f"{name} is {mean} in gradient steps up to {steps}")
    return means
