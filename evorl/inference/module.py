"""A policy as a function from observations to actions, of named tensors and without the rest of its learner.

It computes by the learner's own code (its network, `normalized`, `decide`), with the actor's weights alone: a learner
stacks those of actor and critic.

Letters in shapes: B rows, L logits (all categorical heads side by side), K action components, H the recurrent width.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from evorl.mdp.core import Array, Box, Spec, heads
from evorl.nets.action_values import ActionValues
from evorl.nets.distributions import MASKED, noise_size, to_world
from evorl.nets.per_side import PolicyPerSide
from evorl.nets.policy import Output, Policy
from evorl.rl.network_learner import NetworkLearner


class Port(NamedTuple):
    """A named input or output."""

    name: str
    role: str
    """What it is: observation, mask, state or noise; action, logits, values, probabilities or a constant."""
    dtype: str
    shape: tuple[int, ...]
    """Without the batch, its first axis; a constant has none."""


class Decided(NamedTuple):
    """What a policy computes for B rows."""

    actions: list[Tensor]  # under each noise, [B, K] in the policy's own units: of a Box half its range
    scores: Tensor  # [B, L] masked logits, or values of the actions; of a Box its raw outputs
    state: Tensor | None  # [B, 2 H]


class Seen(NamedTuple):
    """What a policy decides from, in arrays of B rows."""

    inputs: tuple[Array, ...]
    legal: Array | None  # bool [B, L]
    state: Array | None  # float32 [B, 2 H]; 0 at the beginning of an episode
    noise: Array  # [B, noise_size]; 0 for the deterministic policy


class Answer(NamedTuple):
    """What a program reads from the outputs, in arrays of B rows."""

    played: Array  # [B, K]
    scores: Array | None  # [B, L] where the outputs have them
    state: Array | None  # [B, 2 H]


class PolicyModule(nn.Module):
    """A policy with the ports of ``format=onnx`` and ``format=torch``.

    Inputs: each observation under its own name, ``mask`` (true: allowed), ``state`` and ``noise``, where the policy has
    them. Outputs: ``action`` as the environment takes it, ``logits`` (masked) or ``values`` of the choices, and
    ``next_state``.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def __init__(
        self, learner: NetworkLearner[Any], deterministic: bool = True, start: Sequence[int] | None = None
    ) -> None:
        """``start``: the number that the environment gives to the first choice of each component; None: 0."""
        super().__init__()
        self.learner, self.spec, self.deterministic = learner, learner.spec, deterministic
        self.start = tuple(start or (0,) * len(heads(self.spec.action)))
        self.network = plain_network(learner)
        self.width = 0 if self.network.core is None else int(self.network.core.width)
        self.statistics = () if learner.moments is None else learner.moments.tensors(learner.device)
        self.log_std = learner.layout.copied(learner.theta).get("log_std")
        self.no_noise = torch.zeros(1, noise_size(self.spec.action))
        self.eval()
        self.inputs, self.outputs = tuple(self._input_ports()), tuple(self._output_ports())

    # -------------------------------------------------------------- ports

    @property
    def noise(self) -> str:
        """The distribution of the numbers that draw an action."""
        return "normal" if isinstance(self.spec.action, Box) else "gumbel"

    @property
    def scores(self) -> str:
        """What the numbers are of which the largest is chosen."""
        return "logits" if self.learner.hyper.policy_head else "values"

    def _input_ports(self) -> Iterable[Port]:
        spec = self.spec
        reserved = ("mask", "state", "noise", *(port.name for port in self._output_ports()))
        names = port_names([observation.name for observation in spec.inputs], reserved)
        for name, observation in zip(names, spec.inputs, strict=True):
            yield Port(name, "observation", observation.dtype, observation.shape)
        if spec.masked:
            yield Port("mask", "mask", "bool", (sum(heads(spec.action)),))
        if self.width:
            yield Port("state", "state", "float32", (2 * self.width,))
        if not self.deterministic:
            yield Port("noise", "noise", "float32", (noise_size(spec.action),))

    def _output_ports(self) -> Iterable[Port]:
        action = self.spec.action
        yield Port("action", "action", "float32" if isinstance(action, Box) else "int64", (components(self.spec),))
        if not isinstance(action, Box):
            yield Port(self.scores, self.scores, "float32", (sum(heads(action)),))
        if self.width:
            yield Port("next_state", "state", "float32", (2 * self.width,))

    # -------------------------------------------------------------- deciding

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The outputs, in their order, of the inputs in theirs."""
        by_role: dict[str, list[Tensor]] = {"observation": []}
        for port, x in zip(self.inputs, tensors, strict=True):
            by_role.setdefault(port.role, []).append(x)
        (noise,) = by_role.get("noise", [self.no_noise])
        (legal,), (state,) = (by_role.get(role, [None]) for role in ("mask", "state"))
        decided = self.decide(tuple(by_role["observation"]), legal, state, noise)
        out = [to_world(self.spec.action, decided.actions[0])]
        if any(self.start):
            out = [out[0] + torch.tensor([self.start])]
        if not isinstance(self.spec.action, Box):
            out.append(decided.scores)
        return (*out, *(() if decided.state is None else (decided.state,)))

    def decide(
        self, inputs: tuple[Tensor, ...], legal: Tensor | None, state: Tensor | None, *noises: Tensor
    ) -> Decided:
        """Decide for B rows of the world's inputs, under each of ``noises``: [B, noise_size], or [1, noise_size] for
        all rows."""
        learner = self.learner
        inputs = self.normalized(inputs)
        if state is None:
            out = learner.output_of(self.network(inputs))
        else:
            carry = state.unflatten(1, (2, self.width)).transpose(0, 1)
            out = learner.output_of(self.network(tuple(x[None] for x in inputs), carry))
            out = Output(out.raw[0], out.log_std, out.value[0], out.carry, out.features[0])
        if self.log_std is not None:
            out = out._replace(log_std=self.log_std)
        actions = [learner.decide(out, legal, noise, learner.extra_of_a_row)[0] for noise in noises]
        scores = out.raw if legal is None else out.raw.masked_fill(~legal, MASKED)
        after = None if out.carry is None else out.carry.transpose(0, 1).flatten(1)
        return Decided(actions, scores, after)

    def heads(self, scores: Array) -> list[Array]:
        """The scores [B, n] of each choice."""
        return np.split(scores, np.cumsum(heads(self.spec.action))[:-1], axis=-1)

    def normalized(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self.learner.normalized(self.statistics, inputs)

    def taken(self, action: Tensor) -> Tensor:
        """An action [B, K] in the units of engines, which are the policy's own: bounded components within [-1, 1]."""
        box = self.spec.action
        if not isinstance(box, Box):
            return action
        bounded = np.isfinite(box.low) & np.isfinite(box.high)
        limit = torch.from_numpy(np.where(bounded, 1, np.inf).astype(np.float32))
        return action.clamp(-limit, limit)

    def in_world(self, taken: Array) -> Array:
        """The inverse of `taken`: what the world receives."""
        return to_world(self.spec.action, torch.from_numpy(np.array(taken))).numpy()

    # -------------------------------------------------------------- what a program does

    def feed(self, seen: Seen) -> dict[str, Array]:
        """The inputs by name, as a program fills them."""
        parts: dict[str, list[Array | None]] = {
            "observation": [*seen.inputs], "mask": [seen.legal], "state": [seen.state], "noise": [seen.noise],
        }  # fmt: skip
        return {port.name: np.asarray(parts[port.role].pop(0), port.dtype) for port in self.inputs}

    def read(self, outputs: dict[str, Array]) -> Answer:
        """What a program takes from the outputs."""
        return Answer(outputs["action"], outputs.get(self.scores), outputs.get("next_state"))


def components(spec: Spec) -> int:
    """Components of an action, K."""
    return len(spec.action.low) if isinstance(spec.action, Box) else len(heads(spec.action))


def plain_network(learner: NetworkLearner[Any]) -> Policy | ActionValues:
    """The network that decides, with the learner's weights: an actor alone, or action values."""
    named = learner.layout.copied(learner.theta)
    network: Policy | ActionValues
    if isinstance(learner.policy, Policy):
        network = Policy(learner.spec, replace(learner.policy.net, shared=True), critic=False)
        shapes = {name: x.shape for name, x in network.named_parameters()}
        named = {name: named[name][: shape[0]] for name, shape in shapes.items()}  # the actor's lie before the critic's
    else:
        assert not isinstance(learner.policy, PolicyPerSide)
        network = copy.deepcopy(learner.policy)
    network.load_state_dict({**network.state_dict(), **named})  # buffers are constants
    network.requires_grad_(False)
    return network


def port_names(names: Sequence[str], reserved: Sequence[str]) -> list[str]:
    """Names of ports: letters, digits and underscores, each once and none that is reserved.

    A world's names come from anywhere, and engines make identifiers of them.
    """
    taken = {*reserved}
    unique_names: list[str] = []
    for name in names:
        word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:60] or "observation"
        word = f"observation_{word}" if word[0].isdigit() else word
        number, unique = 2, word
        while unique in taken:
            unique, number = f"{word}_{number}", number + 1
        taken.add(unique)
        unique_names.append(unique)
    return unique_names


def example(module: PolicyModule, rows: int) -> tuple[Tensor, ...]:
    """Inputs of so many rows, all of zeros, with everything allowed."""
    made = [torch.zeros(rows, *port.shape, dtype=getattr(torch, port.dtype)) for port in module.inputs]
    return tuple(torch.ones_like(x) if port.role == "mask" else x for x, port in zip(made, module.inputs, strict=True))


def traced(module: PolicyModule) -> torch.export.ExportedProgram:
    """The module as a graph of operations for any number of rows."""
    batch = torch.export.Dim("batch", min=1)
    tensors = example(module, 3)  # of 1, torch takes the number for a constant
    with torch.no_grad():
        return torch.export.export(module, tensors, dynamic_shapes=(tuple({0: batch} for _ in tensors),))


def size(port: Port) -> int:
    """Numbers in a row of a port."""
    return math.prod(port.shape)
