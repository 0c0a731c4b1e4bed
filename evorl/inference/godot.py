"""A policy as the plugin of Godot RL Agents loads it (ONNXInference.cs and sync.gd there).

The plugin feeds one vector, ``obs``, and a number ``state_ins`` that is always 1. It takes the largest of ``output`` by
a comparison that begins at 0, so choices are probabilities: with logits that are all negative it would take choice 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evorl.inference.module import Answer, PolicyModule, Port, Seen, components, size
from evorl.mdp.core import Array, Box, heads
from evorl.rl.network_learner import NetworkLearner
from evorl.util.errors import BadRequest

INSTEAD = "; format=onnx has them, for a script of your own"


class GodotModule(PolicyModule):
    """The observations are one after another in ``obs``; so are the choices, or the means, in ``output``."""

    def __init__(self, learner: NetworkLearner[Any]) -> None:
        spec = learner.spec
        if learner.policy.core is not None:
            raise BadRequest(f"the plugin keeps no state of a recurrent policy{INSTEAD}", "format")
        if spec.masked:
            raise BadRequest(f"the plugin has no masks of actions{INSTEAD}", "format")
        for observation in spec.inputs:
            if len(observation.shape) > 1:
                shape = list(observation.shape)
                why = f"the plugin feeds one vector, and {observation.name!r} is {shape}{INSTEAD}"
                raise BadRequest(why, "format")
        super().__init__(learner)

    def _input_ports(self) -> Iterable[Port]:
        yield Port("obs", "observation", "float32", (sum(sizes_of(self)),))
        yield Port("state_ins", "constant of the plugin", "float32", ())

    def _output_ports(self) -> Iterable[Port]:
        action = self.spec.action
        continuous = isinstance(action, Box)
        numbers = components(self.spec) if continuous else sum(heads(action))
        yield Port("output", "action" if continuous else "probabilities", "float32", (numbers,))
        yield Port("state_outs", "constant of the plugin", "float32", ())

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        obs, state = tensors
        parts = obs.split(sizes_of(self), -1)
        inputs = tuple(
            x.reshape(x.shape[0], *observation.shape) for x, observation in zip(parts, self.spec.inputs, strict=True)
        )
        decided = self.decide(inputs, None, None, self.no_noise)
        if isinstance(self.spec.action, Box):
            return self.taken(decided.actions[0]), state.clone()
        choices = decided.scores.split(heads(self.spec.action), -1)
        return torch.cat([x.softmax(-1) for x in choices], -1), state.clone()

    # -------------------------------------------------------------- what a program does

    def feed(self, seen: Seen) -> dict[str, Array]:
        rows = len(seen.noise)
        obs = np.concatenate([x.reshape(rows, -1).astype(np.float32) for x in seen.inputs], -1)
        return {"obs": obs, "state_ins": np.ones(rows, np.float32)}

    def read(self, outputs: dict[str, Array]) -> Answer:
        """The action, in the world's units."""
        output = outputs["output"]
        if isinstance(self.spec.action, Box):
            return Answer(self.in_world(output.clip(-1, 1)), None, None)
        return Answer(np.stack([largest_above_zero(x) for x in self.heads(output)], -1), None, None)


def sizes_of(module: PolicyModule) -> list[int]:
    """Numbers of each observation."""
    return [
        size(Port(observation.name, "observation", observation.dtype, observation.shape))
        for observation in module.spec.inputs
    ]


def largest_above_zero(scores: Array) -> Array:
    """The choice of each row [B, n] as sync.gd makes it: the first largest above 0, else 0."""
    return np.where(scores.max(-1) > 0, scores.argmax(-1), 0)
