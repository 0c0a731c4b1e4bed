"""Running statistics that a policy carries with it.

They change only between batches, so every decision and every gradient of a batch sees the same numbers,
and merging is in float64 in a fixed order, so a resumed run has the same bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, Self

import torch
from torch import Tensor

from evorl.mdp.core import Input
from evorl.util.types import StateDict

FLOOR = 1e-4  # the least deviation divided by, so that a constant input stays small
CLIP = 10.0  # deviations; a normalised number never leaves [-CLIP, CLIP]


class Running(ABC):
    """Mean and spread of rows seen so far, merged batchwise (Chan, Golub & LeVeque 1979)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0.0
        self.mean = torch.zeros(shape, dtype=torch.float64)
        self.m2 = self.scatter(self.mean[None])

    def update(self, rows: Tensor) -> None:
        """Merge rows [N, ...]."""
        rows = rows.double()
        mean = rows.mean(0)
        self._merge(float(len(rows)), mean, self.scatter(rows - mean))

    def merge(self, state: StateDict) -> None:
        """Merge the rows that another one has seen, given its `state_dict`."""
        if state["count"]:
            self._merge(float(state["count"]), torch.as_tensor(state["mean"]), torch.as_tensor(state["m2"]))

    def _merge(self, n: float, mean: Tensor, m2: Tensor) -> None:
        total, delta = self.count + n, mean - self.mean
        self.m2 = self.m2 + m2 + self.scatter(delta[None]) * (self.count * n / total)
        self.mean = self.mean + delta * (n / total)
        self.count = total

    @abstractmethod
    def scatter(self, centred: Tensor) -> Tensor:
        """The sum of squares, or of products, of centred rows."""

    @abstractmethod
    def scaling(self) -> Tensor:
        """What a shifted row is multiplied by."""

    def state_dict(self) -> StateDict:
        return {"count": self.count, "mean": self.mean, "m2": self.m2}

    def load_state_dict(self, state: StateDict) -> None:
        self.count = float(state["count"])
        mean, m2 = torch.as_tensor(state["mean"]).clone(), torch.as_tensor(state["m2"]).clone()
        if m2.shape != self.m2.shape:
            raise ValueError(f"statistics of shape {list(m2.shape)} where {list(self.m2.shape)} are kept")
        self.mean, self.m2 = mean, m2


class RunningVariance(Running):
    """Mean and variance, number by number."""

    def scatter(self, centred: Tensor) -> Tensor:
        return centred.square().sum(0)

    @property
    def std(self) -> Tensor:
        return (self.m2 / self.count).sqrt() if self.count else torch.ones_like(self.m2)

    def scaling(self) -> Tensor:
        return 1.0 / self.std.clamp(min=FLOOR)


class RunningCovariance(Running):
    """Mean and covariance of flat rows [N, D]."""

    def scatter(self, centred: Tensor) -> Tensor:
        return centred.T @ centred

    def scaling(self) -> Tensor:
        """The inverse root C^(-1/2) of the covariance: a shifted row times it is white and as near as can be
        to the row itself (ZCA; Kessy, Lewin & Strimmer 2018, table 1), [D, D].

        The identity before 2 D rows are seen: of fewer, some directions seem to have no variance at all.
        """
        if self.count < 2 * len(self.mean):
            return torch.eye(len(self.mean), dtype=torch.float64)
        variance, axes = torch.linalg.eigh(self.m2 / self.count)
        whitening: Tensor = axes / variance.clamp(min=FLOOR**2).sqrt() @ axes.T
        return whitening


class Moments:
    """Shifts and scales the inputs of a policy; bytes, of which images are made, pass unchanged.

    ``whiten`` makes the numbers within an input uncorrelated too, so that small differences between them (a ball's
    velocity, from where it was) are as easy to learn from as their common part. It costs D x D numbers for D inputs.
    It is computed in float64: float32 loses the digits in which large numbers, or numbers nearly alike, differ.
    """

    def __init__(self, inputs: tuple[Input, ...], whiten: bool = False) -> None:
        numbers = {i: entry.shape for i, entry in enumerate(inputs) if entry.dtype != "uint8" and 0 not in entry.shape}
        self.whiten = whiten
        self.running: dict[int, Running] = {
            i: RunningCovariance((math.prod(shape),)) if whiten else RunningVariance(shape)
            for i, shape in numbers.items()
        }
        self._tensors: dict[torch.device, tuple[Tensor, ...]] = {}  # until the numbers change

    @classmethod
    def of(cls, inputs: tuple[Input, ...], how: bool | Literal["whiten"]) -> Self | None:
        """The statistics that ``rl.normalize_inputs`` selects; None where it is false."""
        return cls(inputs, how == "whiten") if how else None

    def tensors(self, device: torch.device) -> tuple[Tensor, ...]:
        """Mean and scaling of each input that has such, as `normalize` takes them."""
        if device not in self._tensors:
            pairs = [(r.mean, r.scaling()) for r in self.running.values()]
            dtype = torch.float64 if self.whiten else torch.float32
            self._tensors[device] = tuple(x.to(device, dtype) for pair in pairs for x in pair)
        return self._tensors[device]

    def load_tensors(self, device: torch.device, tensors: tuple[Tensor, ...]) -> None:
        """Normalise by the numbers of another one's `tensors` until the next `update`."""
        self._tensors[device] = tensors

    def normalize(self, statistics: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        out = list(inputs)
        for k, i in enumerate(self.running):
            x, (mean, scale) = inputs[i], statistics[2 * k : 2 * k + 2]
            if self.whiten:
                scaled = ((x.reshape(-1, len(mean)).double() - mean) @ scale).view(x.shape).float()
            else:
                scaled = (x.float() - mean) * scale
            out[i] = scaled.clamp(-CLIP, CLIP)
        return tuple(out)

    def update(self, inputs: tuple[Tensor, ...] | Mapping[int, Tensor]) -> None:
        """Merge a batch of inputs, each [T, B, ...] or [N, ...]; bytes may be missing."""
        self._tensors.clear()
        for i, running in self.running.items():
            running.update(inputs[i].reshape(-1, *running.mean.shape))

    def merge(self, state: StateDict) -> None:
        """Merge the inputs that others have seen, given their `state_dict`."""
        self._tensors.clear()
        for i, running in self.running.items():
            running.merge(state[str(i)])

    def state_dict(self) -> StateDict:
        return {str(i): running.state_dict() for i, running in self.running.items()}

    def load_state_dict(self, state: StateDict) -> None:
        self._tensors.clear()
        for i, running in self.running.items():
            if str(i) not in state:
                raise ValueError(f"there are no statistics of input {i}")
            running.load_state_dict(state[str(i)])


class ReturnScale:
    """Divides each named reward by the running deviation of its discounted return (as OpenAI's VecNormalize does)."""

    def __init__(self, gamma: Tensor) -> None:
        self.gamma = gamma
        self.running = RunningVariance(tuple(gamma.shape))
        self.returns: Tensor | None = None  # [B, R], of the episodes in flight

    def __call__(self, reward: Tensor, start: Tensor) -> Tensor:
        """reward [T, B, R], start [T, B] -> scaled reward within [-CLIP, CLIP]; the statistics include this batch."""
        returns = torch.zeros_like(reward[0]) if self.returns is None else self.returns
        seen = torch.empty_like(reward)
        for t in range(len(reward)):
            seen[t] = returns = returns * self.gamma * (~start[t]).unsqueeze(-1) + reward[t]
        self.returns = returns
        self.running.update(seen.flatten(0, 1))
        return (reward / self.running.std.float().clamp(min=FLOOR)).clamp(-CLIP, CLIP)

    def state_dict(self) -> StateDict:
        return {"running": self.running.state_dict(), "returns": self.returns}

    def load_state_dict(self, state: StateDict) -> None:
        self.running.load_state_dict(state["running"])
        self.returns = None if state["returns"] is None else torch.as_tensor(state["returns"]).clone()
