"""A module's parameters as one flat vector [D], and back.

One vector makes an optimiser step, a gradient norm or a genome a single operation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Layout:
    """Names and shapes of parameters in a flat vector, in module order."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        named = list(module.named_parameters())
        return cls(tuple(name for name, _ in named), tuple(p.shape for _, p in named))

    @property
    def sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """Named parameters -> [D]. Raises ValueError where a name or shape does not fit."""
        if set(named) != set(self.names):
            raise ValueError(
                f"parameters {sorted(set(named) ^ set(self.names))} are in one network and not in the other"
            )
        for name, shape in zip(self.names, self.shapes, strict=True):
            if named[name].shape != shape:
                raise ValueError(
                    f"parameter {name} has shape {list(named[name].shape)}, the network wants {list(shape)}"
                )
        return torch.cat([named[name].detach().reshape(-1) for name in self.names])

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """[D] -> named views of it."""
        parts = theta.split(self.sizes)
        return {n: p.view(s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}

    def copied(self, theta: Tensor) -> dict[str, Tensor]:
        """[D] -> named copies on the CPU, as a state holds them."""
        return copied(self.unflatten(theta))

    def load(self, theta: Tensor, named: Mapping[str, Any]) -> None:
        """Named parameters of a state -> theta [D], in place. Raises ValueError where a name or shape does not fit."""
        theta.copy_(self.flatten({name: torch.as_tensor(x) for name, x in named.items()}))


def copied(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors on the CPU, as a state holds them."""
    return {name: x.cpu().clone() for name, x in named.items()}


def load(tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """The inverse of `copied`: a state -> tensors, in place. Raises KeyError for one that the state lacks."""
    for name, x in tensors.items():
        x.copy_(torch.as_tensor(state[name]))
