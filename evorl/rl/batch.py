"""The kinds of batch, each with what its learners read of the decisions that actors make.

A batch is preallocated storage, which the next collection overwrites. Actors write it through its `Columns`
(`evorl.rl.columns`). Between processes it travels as its fields, ``vars(batch)``.

Letters in shapes: T decisions of a slot, B slots (all members side by side), R named rewards, K action components,
L legal-mask entries, H width of a recurrent core, P parameters of a policy (`evorl.nets.distributions.parameters`),
F features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from evorl.mdp.core import Box, Spec, heads
from evorl.nets.distributions import parameter_count
from evorl.rl.columns import Columns, PolicyGradientColumns, RolloutColumns, TransitionColumns


@dataclass
class Batch(ABC):
    """T decisions of each of B slots: what every learner reads."""

    inputs: tuple[Tensor, ...]  # each [T+1, B, ...]; the last row is the state after the last decision
    legal: Tensor | None  # bool [T+1, B, L]; None in worlds without masks
    start: Tensor  # bool [T+1, B]: an episode's first decision
    action: Tensor  # int64 or float32 [T, B, K]
    reward: Tensor  # [T, B, R]
    done: Tensor  # bool [T, B]

    @abstractmethod
    def columns(self, member: int) -> Columns:
        """Return what the actor of this member fills the batch with."""

    def fill(self, parts: Sequence[Self]) -> Self:
        """Copy the slots of all parts side by side into this storage; return a single part unchanged."""
        if len(parts) == 1:
            return parts[0]
        for name, whole in vars(self).items():
            pieces = [getattr(part, name) for part in parts]
            if isinstance(whole, Tensor):
                torch.cat(pieces, 1, out=whole)
            elif whole is not None:
                for number, x in enumerate(whole):
                    torch.cat([piece[number] for piece in pieces], 1, out=x)
        return self


@dataclass
class PolicyGradientBatch(Batch):
    """What a policy gradient reads: the decisions as the policy that acted saw them.

    ``next_value`` is the value of what followed a decision: of the next state within an episode, of the
    state where a truncated episode was cut, 0 after a termination. ``done`` cuts the recursion either way.
    """

    log_prob: Tensor  # [T, B] under the policy that acted
    value: Tensor  # [T+1, B, R]; the last row is the value to bootstrap from
    final_value: Tensor  # [T, B, R]: where truncated, the value of the state the episode was cut at; else 0
    carry: Tensor | None  # [2, B, H] before the first decision; None for a memoryless policy

    @classmethod
    def empty(cls, spec: Spec, horizon: int, slots: int, lstm: int) -> PolicyGradientBatch:
        """Storage for T = horizon, B = slots and H = lstm."""
        return cls(**_policy_gradient_fields(spec, horizon, slots, lstm))

    @property
    def next_value(self) -> Tensor:
        """The value [T, B, R] of what followed each decision."""
        return torch.where(self.done.unsqueeze(-1), self.final_value, self.value[1:])

    def columns(self, member: int) -> Columns:
        return PolicyGradientColumns(self)


@dataclass
class RolloutBatch(PolicyGradientBatch):
    """What a replay of whole rollouts keeps. The last row of ``value`` is 0: learners compute it anew."""

    policy: Tensor  # [T, B, P] the policy that acted
    features: Tensor | None  # [T, B, F] its features; None where no sampler compares them

    @classmethod
    def empty(cls, spec: Spec, horizon: int, slots: int, lstm: int, features: int = 0) -> RolloutBatch:
        """Storage for T = horizon, B = slots, H = lstm and F = features."""
        return cls(
            **_policy_gradient_fields(spec, horizon, slots, lstm),
            policy=torch.zeros(horizon, slots, parameter_count(spec.action)),
            features=torch.zeros(horizon, slots, features) if features else None,
        )

    def columns(self, member: int) -> Columns:
        return RolloutColumns(self)


@dataclass
class TransitionBatch(Batch):
    """What a replay of transitions keeps: how episodes went on or ended, and where each slot stands in its run."""

    carries: Tensor | None  # [T, B, 2, H] before each decision, zero where it begins an episode
    terminated: Tensor  # bool [T, B]: the episode ended in a terminal state
    final_inputs: tuple[Tensor, ...]  # each [T, B, ...]: where truncated, the state it was cut at
    final_legal: Tensor | None  # bool [T, B, L]
    origin: Tensor  # int64 [2, B]: number of the slot in the run, decisions that it had made before

    @classmethod
    def empty(cls, spec: Spec, horizon: int, slots: int, lstm: int) -> TransitionBatch:
        """Storage for T = horizon, B = slots and H = lstm."""
        return cls(
            **_fields(spec, horizon, slots),
            carries=torch.zeros(horizon, slots, 2, lstm) if lstm else None,
            terminated=torch.zeros(horizon, slots, dtype=torch.bool),
            final_inputs=_states(spec, horizon, slots),
            final_legal=_masks(spec, horizon, slots),
            origin=torch.zeros(2, slots, dtype=torch.int64),
        )

    def columns(self, member: int) -> Columns:
        return TransitionColumns(self, member)


def _fields(spec: Spec, horizon: int, slots: int) -> dict[str, Any]:
    """Empty storage for the fields of `Batch`."""
    action = (
        torch.zeros(horizon, slots, len(spec.action.low))
        if isinstance(spec.action, Box)
        else torch.zeros(horizon, slots, len(heads(spec.action)), dtype=torch.int64)
    )
    return {
        "inputs": _states(spec, horizon + 1, slots),
        "legal": _masks(spec, horizon + 1, slots),
        "start": torch.ones(horizon + 1, slots, dtype=torch.bool),
        "action": action,
        "reward": torch.zeros(horizon, slots, len(spec.rewards)),
        "done": torch.zeros(horizon, slots, dtype=torch.bool),
    }


def _policy_gradient_fields(spec: Spec, horizon: int, slots: int, lstm: int) -> dict[str, Any]:
    """Empty storage for the fields of `PolicyGradientBatch`."""
    return {
        **_fields(spec, horizon, slots),
        "log_prob": torch.zeros(horizon, slots),
        "value": torch.zeros(horizon + 1, slots, len(spec.rewards)),
        "final_value": torch.zeros(horizon, slots, len(spec.rewards)),
        "carry": torch.zeros(2, slots, lstm) if lstm else None,
    }


def _states(spec: Spec, length: int, slots: int) -> tuple[Tensor, ...]:
    """Empty storage for the inputs of states, each [length, slots, ...]."""
    return tuple(torch.zeros(length, slots, *x.shape, dtype=getattr(torch, x.dtype)) for x in spec.inputs)


def _masks(spec: Spec, length: int, slots: int) -> Tensor | None:
    """Storage for legal masks [length, slots, L] in which all is legal; None in worlds without masks."""
    return torch.ones(length, slots, sum(heads(spec.action)), dtype=torch.bool) if spec.masked else None
