"""One network made of several: each side of a game, or each group of sides, has its own, built from its own spaces.

All of them compute every row, and the side in an observation (`Spec.who`) selects the one that counts. So shapes are
fixed, the bits of a row do not depend on who has the others, and the gradient of a network is that of its own rows. A
pass costs as much as the passes of all networks.

Letters in shapes: P sides, N networks, L outputs of a policy head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from evorl.mdp.core import Action, Box, Input, Spec, heads
from evorl.nets.distributions import MASKED
from evorl.nets.policy import Net, Output, Policy
from evorl.nets.statistics import Moments
from evorl.util.errors import BadRequest
from evorl.util.types import Natural, StateDict

Policies = Literal["shared", "each"] | tuple[tuple[Natural, ...], ...]
"""One network for all sides, one for each, or one for each of these groups of sides."""
WITHOUT_ENTROPY = -0.5 * math.log(2 * math.pi * math.e)
"""Logarithm of a deviation: that of components which a side does not have, so that its entropy is that of its own."""
KEY = "rl.policies"


@dataclass(frozen=True)
class Part:
    """Sides that have a network in common, and what it sees of the inputs and decides of the actions of all sides."""

    sides: tuple[int, ...]
    inputs: tuple[Input | None, ...]
    action: Action

    def of(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Its own numbers of the inputs, each [..., *shape]."""
        pairs = [(x, own) for x, own in zip(inputs, self.inputs, strict=True) if own is not None]
        return tuple(x[..., : own.shape[0]] if len(own.shape) == 1 else x for x, own in pairs)


def parts(spec: Spec, policies: Policies) -> tuple[Part, ...]:
    """Return the part of each network. Sides with spaces of their own have those of all sides in common.

    Raises `BadRequest` for a world whose observations do not say the side, and for groups that lack a side or repeat
    it.
    """
    if spec.players == 1:
        raise BadRequest("the games of this world have one side", KEY)
    if not spec.who:
        raise BadRequest("observations do not tell which side it is (Spec.who), so one policy plays all sides", KEY)
    groups = [(side,) for side in range(spec.players)] if isinstance(policies, str) else policies
    if sorted(side for group in groups for side in group) != [*range(spec.players)] or () in groups:
        listed = [list(group) for group in groups]
        raise BadRequest(f"expected groups of the sides 0 to {spec.players - 1}, each once, got {listed}", KEY)
    made = []
    for group in groups:
        own = {spec.of_side(side) for side in group}
        inputs, action = own.pop() if len(own) == 1 else (spec.inputs, spec.action)
        made.append(Part(tuple(group), inputs, action))
    return tuple(made)


class Who:
    """The part that each row belongs to, by its observation."""

    def __init__(self, spec: Spec, own: Sequence[Part]) -> None:
        self.place = next(place for place, entry in enumerate(spec.inputs) if entry.name == spec.who)
        self.players, self.parts = spec.players, own

    def masks(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The rows of each part, bool [...]."""
        flags = inputs[self.place].unbind(-1)
        return [sum((flags[side] for side in part.sides[1:]), flags[part.sides[0]]) > 0.5 for part in self.parts]


def selected(masks: Sequence[Tensor], each: Sequence[Tensor]) -> Tensor:
    """Each row of ``each`` [..., *shape] of the part that it belongs to."""
    out = each[0]
    for mask, x in zip(masks[1:], each[1:], strict=True):
        out = torch.where(mask[(..., *(None,) * (x.dim() - mask.dim()))], x, out)
    return out


class PolicyPerSide(nn.Module):
    """Several policies, with the interface of `evorl.nets.policy.Policy`. Deviations of a Box are among the outputs."""

    def __init__(self, spec: Spec, net: Net, policies: Policies) -> None:
        super().__init__()
        self.spec, self.net, self.parts = spec, net, parts(spec, policies)
        self.who = Who(spec, self.parts)
        self.policies = nn.ModuleList(
            Policy(Spec(tuple(own for own in part.inputs if own is not None), part.action, spec.rewards), net)
            for part in self.parts
        )

    def initialise(self, generator: torch.Generator) -> None:
        for policy in self._policies:
            policy.initialise(generator)

    @property
    def _policies(self) -> list[Policy]:
        return [policy for policy in self.policies if isinstance(policy, Policy)]

    @property
    def light(self) -> bool:
        return all(policy.light for policy in self._policies)

    @property
    def core(self) -> nn.Module | None:
        return self._policies[0].core

    def carry(self, rows: int) -> Tensor | None:
        return self._policies[0].carry(rows)

    def forward(self, inputs: tuple[Tensor, ...], carry: Tensor | None = None, start: Tensor | None = None) -> Output:
        """As `Policy.forward`. A memory belongs to the side of its row: episodes begin with none, so none is shared."""
        masks = self.who.masks(inputs)
        each = [policy(part.of(inputs), carry, start) for part, policy in zip(self.parts, self._policies, strict=True)]
        raw = [
            widened(self.spec.action, part.action, out.raw, out.log_std)
            for part, out in zip(self.parts, each, strict=True)
        ]
        width = max(out.features.shape[-1] for out in each)
        features = [pad(out.features, (0, width - out.features.shape[-1])) for out in each]
        carries = [out.carry for out in each if out.carry is not None]
        return Output(
            selected(masks, raw), None, selected(masks, [out.value for out in each]),
            selected([mask[-1:] for mask in masks], carries) if carries else None, selected(masks, features),
        )  # fmt: skip


def widened(action: Action, own: Action, raw: Tensor, log_std: Tensor | None) -> Tensor:
    """Outputs of a policy head for a side's own actions as those for the actions of all sides, [..., L].

    Choices that the side lacks have probability 0; of heads that it lacks it takes the first choice. Of a Box these are
    means and log standard deviations.
    """
    if isinstance(action, Box):
        assert isinstance(own, Box)
        size, more = len(own.low), (0, len(action.low) - len(own.low))
        deviation = raw[..., size:] if log_std is None else log_std.expand_as(raw)
        return torch.cat([pad(raw[..., :size], more), pad(deviation, more, value=WITHOUT_ENTROPY)], -1)
    sizes, mine = heads(action), heads(own)
    logits = [
        pad(x, (0, size - x.shape[-1]), value=MASKED) for x, size in zip(raw.split(mine, -1), sizes, strict=False)
    ]
    nothing = raw[..., :1] * 0
    return torch.cat([*logits, *(pad(nothing, (0, size - 1), value=MASKED) for size in sizes[len(mine) :])], -1)


class MomentsPerSide(Moments):
    """Statistics of its own for each part. The row that names the side is not normalised."""

    def __init__(self, spec: Spec, own: Sequence[Part], whiten: bool = False) -> None:
        super().__init__((), whiten)
        self.who = Who(spec, own)
        self.each = [Moments(tuple(x or Input("", (0,)) for x in part.inputs), whiten) for part in own]

    def tensors(self, device: torch.device) -> tuple[Tensor, ...]:
        if device not in self._tensors:
            self._tensors[device] = tuple(x for moments in self.each for x in moments.tensors(device))
        return self._tensors[device]

    def normalize(self, statistics: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        masks, place = self.who.masks(inputs), self.who.place
        rows: list[list[Tensor]] = []
        for part, moments in zip(self.who.parts, self.each, strict=True):
            own, statistics = statistics[: 2 * len(moments.running)], statistics[2 * len(moments.running) :]
            rows.append(self._filled(part, inputs, moments.normalize(own, self._seen(part, inputs))))
        out = [selected(masks, each) if x.dtype != torch.uint8 else x for x, *each in zip(inputs, *rows, strict=True)]
        flags = inputs[place][..., : self.who.players]
        out[place] = torch.cat([flags, out[place][..., self.who.players :]], -1)
        return tuple(out)

    def update(self, inputs: tuple[Tensor, ...] | Mapping[int, Tensor]) -> None:
        self._tensors.clear()
        assert isinstance(inputs, tuple)
        for part, moments, mask in zip(self.who.parts, self.each, self.who.masks(inputs), strict=True):
            if mask.any():
                moments.update(tuple(x[mask] for x in self._seen(part, inputs)))

    def merge(self, state: StateDict) -> None:
        self._tensors.clear()
        for number, moments in enumerate(self.each):
            moments.merge(state[str(number)])

    def state_dict(self) -> StateDict:
        return {str(number): moments.state_dict() for number, moments in enumerate(self.each)}

    def load_state_dict(self, state: StateDict) -> None:
        self._tensors.clear()
        for number, moments in enumerate(self.each):
            if str(number) not in state:
                raise ValueError(f"there are no statistics of policy {number}")
            moments.load_state_dict(state[str(number)])

    def _seen(self, part: Part, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The part's own numbers of all inputs; none of those that it does not see."""
        return tuple(
            x[..., :0] if own is None else x[..., : own.shape[0]] if len(own.shape) == 1 else x
            for x, own in zip(inputs, part.inputs, strict=True)
        )

    def _filled(self, part: Part, inputs: tuple[Tensor, ...], own: tuple[Tensor, ...]) -> list[Tensor]:
        """Its numbers in place among those of all sides."""
        return [
            pad(x, (0, whole.shape[-1] - x.shape[-1])) if seen is None or len(seen.shape) == 1 else x
            for whole, x, seen in zip(inputs, own, part.inputs, strict=True)
        ]
