"""A policy as Unity's ML-Agents loads it: an ONNX model for its package com.unity.ml-agents 2 and newer.

Names, shapes and dtypes are those of SentisModelParamLoader.cs and TensorNames.cs there. The loader reads the version,
the size of the memory and the shape of actions from outputs, which must be floats. It fills ``epsilon`` with standard
normal noise, and takes the sampled or the deterministic actions, as the behaviour's Deterministic Inference says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evorl.inference.module import Answer, PolicyModule, Port, Seen, components
from evorl.mdp.core import Array, Box, Input, heads
from evorl.nets.distributions import noise_size
from evorl.nets.encoders import is_image
from evorl.nets.statistics import CLIP
from evorl.rl.network_learner import NetworkLearner
from evorl.util.errors import BadRequest

VERSION = 3.0
"""MLAgents2_0 in the loader."""
RANKS = (1, 2, 3)
"""Axes of an observation that sensors have."""


class UnityModule(PolicyModule):
    """Continuous actions lie in [-1, 1] where the world's are bounded, as ML-Agents has them. A file has the drawn and
    the deterministic ones."""

    def __init__(self, learner: NetworkLearner[Any]) -> None:
        for observation in learner.spec.inputs:
            if len(observation.shape) not in (0, *RANKS):
                shape = list(observation.shape)
                raise BadRequest(
                    f"the observation {observation.name!r} is {shape}, and Unity's sensors have 3 axes", "format"
                )
        super().__init__(learner, deterministic=False)
        self.kind = "continuous" if isinstance(self.spec.action, Box) else "discrete"

    @property
    def noise(self) -> str:
        return "normal"  # `noise_of` makes what choices need

    def _input_ports(self) -> Iterable[Port]:
        spec = self.spec
        for number, observation in enumerate(spec.inputs):
            yield Port(f"obs_{number}", "observation", "float32", observation.shape or (1,))
        if not isinstance(spec.action, Box):
            yield Port("action_masks", "mask", "float32", (sum(heads(spec.action)),))
        if self.width:
            yield Port("recurrent_in", "state", "float32", (1, 2 * self.width))
        yield Port("epsilon", "noise", "float32", (noise_size(spec.action),))

    def _output_ports(self) -> Iterable[Port]:
        many, continuous = components(self.spec), isinstance(self.spec.action, Box)
        kind, dtype = ("continuous", "float32") if continuous else ("discrete", "int64")
        yield Port("version_number", "constant", "float32", (1,))
        yield Port("memory_size", "constant", "float32", (1,))
        yield Port(f"{kind}_actions", "action", dtype, (many,))
        yield Port(f"{kind}_action_output_shape", "constant", "float32", (1,) if continuous else (1, many))
        yield Port(f"deterministic_{kind}_actions", "action", dtype, (many,))
        if self.width:
            yield Port("recurrent_out", "state", "float32", (1, 2 * self.width))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        many = len(self.spec.inputs)
        inputs = tuple(map(self.as_the_world, self.spec.inputs, tensors[:many]))
        by_role = {port.role: x for port, x in zip(self.inputs[many:], tensors[many:], strict=True)}
        legal = by_role["mask"] != 0 if self.spec.masked else None
        state = by_role["state"].squeeze(1) if self.width else None
        decided = self.decide(inputs, legal, state, self.noise_of(by_role["noise"]), self.no_noise)
        drawn, still = map(self.taken, decided.actions)
        shape = [[*heads(self.spec.action)]] if self.kind == "discrete" else [components(self.spec)]
        made = [torch.tensor([VERSION]), torch.tensor([2.0 * self.width])]
        made += [drawn, torch.tensor(shape, dtype=torch.float32), still]
        return (*made, *(() if decided.state is None else (decided.state.unsqueeze(1),)))

    def as_the_world(self, observation: Input, x: Tensor) -> Tensor:
        """An observation as the world has it: pixels come as parts of 1."""
        x = x.reshape(x.shape[0], *observation.shape)
        return x * 255.0 if is_image(observation) else x

    def noise_of(self, epsilon: Tensor) -> Tensor:
        """The noise of a decision, of standard normal numbers: Gumbel noise for choices, by its quantiles."""
        if isinstance(self.spec.action, Box):
            return epsilon
        uniform = ((1 + torch.erf(epsilon * 0.5**0.5)) / 2).clamp(1e-7, 1 - 1e-7)
        return -torch.log(-torch.log(uniform))

    def normalized(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Whitening in float32, since Unity has no float64: the mean is subtracted in two parts, which is exact."""
        moments = self.learner.moments
        if moments is None or not moments.whiten:
            return super().normalized(inputs)
        out = list(inputs)
        for k, i in enumerate(moments.running):
            mean, scale = self.statistics[2 * k : 2 * k + 2]
            x = inputs[i].reshape(-1, len(mean)) - mean.float() - (mean - mean.float()).float()
            out[i] = (x @ scale.float()).view(inputs[i].shape).clamp(-CLIP, CLIP)
        return tuple(out)

    # -------------------------------------------------------------- what a program does

    def feed(self, seen: Seen) -> dict[str, Array]:
        rows = len(seen.noise)
        inputs: dict[str, Array] = {}
        for number, (observation, x) in enumerate(zip(self.spec.inputs, seen.inputs, strict=True)):
            numbers = x.astype(np.float32).reshape(rows, *(observation.shape or (1,)))
            inputs[f"obs_{number}"] = numbers / np.float32(255) if is_image(observation) else numbers
        if self.kind == "discrete":
            allowed = seen.legal if seen.legal is not None else np.ones((rows, sum(heads(self.spec.action))))
            inputs["action_masks"] = allowed.astype(np.float32)
        if seen.state is not None:
            inputs["recurrent_in"] = seen.state[:, None]
        return {**inputs, "epsilon": seen.noise}

    def read(self, outputs: dict[str, Array]) -> Answer:
        """The deterministic action, in the world's units."""
        state, action = outputs.get("recurrent_out"), outputs[f"deterministic_{self.kind}_actions"]
        return Answer(self.in_world(action), None, None if state is None else state[:, 0])
