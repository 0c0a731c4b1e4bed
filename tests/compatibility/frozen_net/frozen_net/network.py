"""FrozenNet: all inputs with sine waves of them, whose frequencies are learned (Li & Pathak 2021, arXiv 2112.03257)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from evorl.nets.encoders import Encoder, Inputs
from evorl.util.types import Count, Positive
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Options:
    """The keys rl.net.own.frozen_net."""

    waves: Count = 32
    """Frequencies, each with a sine and a cosine."""
    sigma: Positive = 0.1
    """Standard deviation of the frequencies at first."""


class FrozenNet(Encoder):
    """[x, sin(x W), cos(x W)] of the inputs side by side, x; hidden layers follow."""

    options = Options
    light = True

    def __init__(self, inputs: Inputs, keys: Options, dense: bool = True) -> None:
        super().__init__(inputs, keys, dense)
        size = sum(math.prod(entry.shape) for entry in inputs)
        self.sigma = keys.sigma
        self.frequencies = nn.Parameter(torch.zeros(size, keys.waves))
        self.width = size + 2 * keys.waves

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.frequencies, 0.0, self.sigma, generator=generator)

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        x = torch.cat([each.flatten(1).float() for each in inputs], -1)
        angle = x @ self.frequencies
        return torch.cat([x, angle.sin(), angle.cos()], -1)
