"""Action-value networks: several critics Q(s, a) at once.

    inputs -> encoder (evorl.nets.encoders), with the action -> hidden layers -> value of each reward

The critics' layers are stacked, so that each layer is one batched product. They share the encoder of an image.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call

from evorl.mdp.core import Box, Spec
from evorl.nets.flat import Layout
from evorl.nets.policy import ACTIVATIONS, Activation, Layer, Net


class QFunctions(nn.Module):
    """G critics of one shape; Box actions in units of their half range."""

    def __init__(self, spec: Spec, net: Net, critics: int, activation: Activation | None = None) -> None:
        super().__init__()
        assert isinstance(spec.action, Box)
        self.encoders = net.encoders(spec.inputs)
        widths = (self.encoders.width + len(spec.action.low), *net.hidden, len(spec.rewards))
        self.layers = nn.ModuleList(Layer(critics, i, o) for i, o in pairwise(widths))
        self.activation = ACTIVATIONS[activation or net.activation]

    def forward(self, inputs: tuple[Tensor, ...], action: Tensor) -> Tensor:
        """Values [G, N, R] of actions [N, K] in the states of ``inputs``, each [N, ...]."""
        x = torch.cat([self.encoders(inputs), action], -1)
        *hidden, head = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        values: Tensor = head(x)
        return values if values.dim() == 3 else values[None]

    def first(self, layout: Layout, phi: Tensor, inputs: tuple[Tensor, ...], action: Tensor) -> Tensor:
        """Values [N, R] of the first critic alone, under flat parameters ``phi``."""
        named = layout.unflatten(phi)
        first = {name: x[:1] if name.startswith("layers.") else x for name, x in named.items()}
        values: Tensor = functional_call(self, first, (inputs, action))
        return values[0]
