"""What every learner shares: batches, episodes, the base of hyper-parameters, and the `Learner` protocol.

Letters in shapes: T decisions of a slot in a batch, B slots (all members side by side), R named rewards,
K action components, L legal-mask entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    """A batch of decisions, one row per slot, made in inference mode: to be copied before autograd sees it."""

    action: Tensor  # [B, K] in the policy's own units; what the learner stores
    played: Tensor  # [B, K] what the world receives
    log_prob: Tensor  # [B]
    value: Tensor  # [B, R]
    carry: Tensor | None  # [2, B, H]


class Learned(NamedTuple):
    """What came of one batch."""

    steps: int  # of the optimiser
    metrics: Metrics


class Episode(NamedTuple):
    """One finished episode."""

    ret: float  # undiscounted, all rewards together
    length: float  # environment steps; decisions where the world reports none
    rewards: tuple[float, ...]  # the return of each named reward
    results: dict[str, float]  # what the world says of it


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

    @classmethod
    def empty(cls, spec: Spec, horizon: int, slots: int, lstm: int) -> Batch:
        """Storage for T = horizon and B = slots."""
        t, b, r = horizon, slots, len(spec.rewards)
        legal = sum(heads(spec.action))
        action = (
            torch.zeros(t, b, len(spec.action.low))
            if isinstance(spec.action, Box)
            else torch.zeros(t, b, len(heads(spec.action)), dtype=torch.int64)
        )
        return cls(
            inputs=tuple(torch.zeros(t + 1, b, *one.shape, dtype=getattr(torch, one.dtype)) for one in spec.inputs),
            legal=torch.ones(t + 1, b, legal, dtype=torch.bool) if spec.masked else None,
            start=torch.ones(t + 1, b, dtype=torch.bool),
            action=action,
            log_prob=torch.zeros(t, b),
            value=torch.zeros(t + 1, b, r),
            final_value=torch.zeros(t, b, r),
            reward=torch.zeros(t, b, r),
            done=torch.zeros(t, b, dtype=torch.bool),
            carry=torch.zeros(2, b, lstm) if lstm else None,
        )

    def fill(self, parts: Sequence[Batch]) -> Batch:
        """Put the slots of all parts side by side in this storage; a single part is returned itself."""
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
        """[T, B, R]"""
        return torch.where(self.done.unsqueeze(-1), self.final_value, self.value[1:])


@dataclass(frozen=True, kw_only=True)
class Hyper(ABC):
    """Hyper-parameters of every learner; each field is a Hydra key of its ``conf/rl`` file."""

    members: Count = 1
    """Logical shards of the sampling; part of the experiment, not of the machine."""
    slots: Count = 16
    """Episodes at once in each member."""
    horizon: Count = 128
    """Decisions of each slot in a batch (T)."""
    gamma: Fraction | dict[str, Fraction] = 0.99
    """Discount per decision; one number, or one for each named reward."""
    lr: Schedule = 3e-4
    """Learning rate, or its schedule over environment steps."""
    adam_epsilon: Positive = 1e-5
    max_grad_norm: Positive = 0.5
    normalize_inputs: bool | Literal["whiten"] = False
    """Shift and scale inputs by running statistics, saved with the policy and frozen in evaluation; whiten also
    decorrelates the numbers of an input."""
    asynchronous: bool = False
    """Learn from each member's batch as it comes, while the members play on under the weights they have."""
    max_lag: Count | None = None
    """Asynchronous: batches whose weights are more updates old are dropped; null is four times the members."""
    threads: Threads = 1
    """Threads of torch; part of the experiment, since large sums change their last bits with it."""
    compile: bool = False
    """Make machine code of the gradient step (half a minute, kept for later runs): it costs less where it is small."""
    net: Net = field(default_factory=Net)

    @property
    def begins(self) -> str:
        """What to say before a run whose first gradient step takes its time; empty for the others."""
        if not self.compile:
            return ""
        return "rl.compile: half a minute for the compiler, unless this machine has kept what it makes"

    @abstractmethod
    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        """A learner with fresh weights."""

    def per_reward(self, name: str, rewards: tuple[str, ...]) -> Tensor:
        """The field ``name`` (gamma or lam) for each named reward, [R]. Raises `BadRequest` for other names."""
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
    """What plays: one policy, or several behind one face."""

    spec: Spec

    def carry(self, slots: int) -> Tensor | None:
        """The recurrent state [2, B, H] of episodes about to begin; None for a memoryless policy."""
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
    """One policy and how it improves. No loop, no sockets, no files."""

    update_input: ClassVar[type]
    """The type that `update` takes: `Batch`, or what the members compute from one (gradients in A3C)."""

    def weights(self) -> list[Tensor]:
        """Everything that acting needs; not copied."""
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

    def load_state_dict(self, state: StateDict) -> None: ...

    def load_policy(self, state: StateDict) -> None:
        """Only what acting needs, from a learner's state. Raises ValueError where it does not fit."""
        ...


class NotFinite(ArithmeticError):
    """A NaN or an infinity; the message names what, where and at which step."""
