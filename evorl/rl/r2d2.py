"""Recurrent replay distributed DQN (Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed RL").

DQN with a recurrent core, which learns from sequences. A sequence begins with the state of the core that the acting
network had there (section 3.2). Over a prefix, the burn-in, it is only computed on; then follow the decisions to learn
from, with n-step double Q targets in rescaled units. Sequences are prioritised by a mixture of their largest and their
mean error (section 2.3).

Letters in shapes: S states of a sequence, T decisions to learn from, N sequences, R named rewards, A actions, M atoms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from evorl.mdp.core import Spec
from evorl.nets.action_values import perturbed
from evorl.nets.policy import Net, Output
from evorl.nets.trees import Tree, mapped
from evorl.ops.rescaling import rescale, unscale
from evorl.replay.samplers.registry import Sampling, SequenceSamplers
from evorl.replay.sequences import Extent, read_sequences
from evorl.replay.storage import Array, Numbers
from evorl.rl import dqn
from evorl.rl.network_learner import Network
from evorl.rl.replay_learner import CHUNK, Reading
from evorl.util.errors import BadRequest
from evorl.util.types import Count, Natural


@dataclass(frozen=True, kw_only=True)
class R2D2(dqn.DQN):
    sequences: ClassVar[bool] = True

    batch: Count = 32
    """Sequences in a gradient step."""
    n_step: Count = 5
    double: bool = True
    dueling: bool = True
    sampling: Sampling = "prioritized"
    replay: SequenceSamplers = field(default_factory=SequenceSamplers)
    length: Count = 20
    """Decisions of a sequence to learn from; fewer where its episode ends."""
    burn_in: Natural = 10
    """Decisions before them that the core sees without learning; fewer where the episode begins."""
    rescale: bool = True
    """Learn h(return), which makes large returns small."""
    net: Net = field(default_factory=lambda: Net(hidden=(128,), activation="relu", lstm=64))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.net.lstm:
            raise BadRequest("sequences are for a recurrent network; rl=dqn needs none", "net.lstm")

    @property
    def samples(self) -> int:
        return self.batch * self.length

    @property
    def extent(self) -> Extent:
        return Extent(self.burn_in, self.length, self.n_step)

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner:
        return Learner(self, spec, seed, device)


class Sequences(NamedTuple):
    """A minibatch of N sequences."""

    inputs: tuple[Tensor, ...]  # each [burn_in + S, N, ...]
    carry: Tensor  # [2, N, H] of the core before the first of these states
    prefix: Tensor  # [1, N] states of the burn-in that there are
    action: Tensor  # [T, N, 1]
    reward: Tensor  # [T, N, R], the discounted sum of ``n_step``
    discount: Tensor  # [T, N, R] of the value after these; 0 after a terminal state
    ahead: Tensor  # [T, N] the state after these, of S
    share: Tensor  # [T, N] of each decision in the mean over all that are there, times N
    legal: Tensor | None  # bool [S, N, L]
    weight: Tensor | None = None  # [1, N] of the loss, with priorities


class Learner(dqn.Learner[R2D2]):
    rows: ClassVar[int] = 1

    def __init__(self, hyper: R2D2, spec: Spec, seed: int, device: torch.device) -> None:
        super().__init__(hyper, spec, seed, device)
        self.near: Numbers = np.zeros((0, 0), np.int64)  # those whose priorities follow, of `drawn` [minibatches * N]

    @property
    def chunk(self) -> int:
        return max(CHUNK // self.hyper.length, 1)

    # -------------------------------------------------------------- values

    def output_of(self, outputs: Any) -> Output:
        out = super().output_of(outputs)
        assert out.carry is not None
        raw, value, features = (x.unflatten(0, (-1, out.carry.shape[1])) for x in (out.raw, out.value, out.features))
        return Output(raw, None, value, out.carry, features)

    def unroll(
        self, theta: Tensor, noise: Tensor, inputs: tuple[Tensor, ...], carry: Tensor, start: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Outputs [S, N, R, A, M] in successive states from a carry [2, N, H], and the last carry.

        No episode starts within a sequence.
        """
        named, lead = self.layout.unflatten(theta), inputs[0].shape[:2]
        if len(noise):
            named = perturbed(self.policy, named, noise)
        if start is None:
            start = torch.zeros(lead, dtype=torch.bool, device=carry.device)
        values, carry = functional_call(self.policy, named, (inputs, carry, start))
        return values.unflatten(0, lead), carry

    @torch.no_grad()
    def burnt_in(
        self, theta: Tensor, noise: Tensor, inputs: tuple[Tensor, ...], carry: Tensor, prefix: Tensor
    ) -> Tensor:
        """The carry after a prefix of states that ends with state ``burn_in`` - 1 and of which each sequence has
        ``prefix`` [N] (section 3.2)."""
        for s in range(self.hyper.burn_in):
            _, after = self.unroll(theta, noise, tuple(x[s : s + 1] for x in inputs), carry)
            carry = torch.where((s >= self.hyper.burn_in - prefix)[:, None], after, carry)
        return carry

    def to_units(self, returns: Tensor) -> Tensor:
        return rescale(returns) if self.hyper.rescale else returns

    def to_returns(self, values: Tensor) -> Tensor:
        return unscale(values) if self.hyper.rescale else values

    # -------------------------------------------------------------- learning

    def minibatches(self, reading: Reading, first: int, count: int, *words: int | str) -> Any:
        drawn = super().minibatches(reading, first, count, *words)
        return drawn if drawn.weight is None else drawn._replace(weight=drawn.weight[:, None])

    def _read(self, reading: Reading, numbers: Numbers, count: int) -> Any:
        """The `Sequences` [count, ...] that begin with these numbers."""
        gamma = self.gamma.numpy().astype(np.float64)
        sequences = read_sequences(reading.storage, numbers, reading.oldest, reading.length, gamma, self.hyper.extent)
        half = (self.hyper.length + 1) // 2
        self.near = np.where(sequences.exists, sequences.numbers, numbers)[:half].T
        present = sequences.exists.reshape(self.hyper.length, count, -1).astype(np.float32)
        share = (present / present.mean(2, keepdims=True).sum(0, keepdims=True)).reshape(self.hyper.length, -1)
        side_by_side: Tree = (tuple(sequences.inputs), sequences.carry, sequences.prefix[None],
                              sequences.action, sequences.reward,
                              sequences.discount, sequences.ahead, share, sequences.legal)  # fmt: skip

        def apart(x: Any) -> Tensor:
            x = x.reshape(len(x), count, x.shape[1] // count, *x.shape[2:]).swapaxes(0, 1)
            return torch.from_numpy(np.ascontiguousarray(x)).to(self.device)

        return Sequences(*mapped(apart, side_by_side))

    def _step(
        self, network: Network, theta_target: Tensor, lr: Tensor, statistics: tuple[Tensor, ...], noise: Tensor,
        minibatch: Any,
    ) -> dict[str, Tensor]:  # fmt: skip
        batch: Sequences = minibatch
        theta, inputs = network.theta, self.normalized(statistics, batch.inputs)
        carry, prefix, ahead, share = batch.carry, batch.prefix[0], batch.ahead, batch.share
        before, states = (tuple(x[part] for x in inputs) for part in self._parts)
        leaf = theta.detach().requires_grad_()
        values, _ = self.unroll(leaf, noise[0], states, self.burnt_in(theta, noise[0], before, carry, prefix))
        with torch.no_grad():
            following, _ = self.unroll(
                theta_target, noise[1], states, self.burnt_in(theta_target, noise[1], before, carry, prefix)
            )
            chooser = values.detach() if self.hyper.double else following
            led_to = (_at(following, ahead), _at(chooser, ahead))
            mask = None if batch.legal is None else _at(batch.legal, ahead)
            target = self.backed_up(*led_to, batch.reward.flatten(0, 1), batch.discount.flatten(0, 1), mask)
        length = self.hyper.length
        predicted = dqn.of_action(values[:length].flatten(0, 1), batch.action.flatten(0, 1))
        loss, error = (x.view(length, -1) for x in self.losses(predicted, target))
        shared = (share * loss).sum(0)  # so a mean over sequences is one over decisions
        weighted = shared if batch.weight is None else batch.weight[0] * shared
        (gradient,) = torch.autograd.grad(weighted.mean(), leaf)
        norm = self._apply_gradient(gradient, *network, lr)
        q = self.mean(predicted.detach()).view(length, -1, len(self.spec.rewards)).mean(-1)
        stats = {"loss/value": shared.detach().mean(), "value/q": (share * q).sum(0).mean()}
        stats["optimizer/grad_norm"] = norm
        return stats if batch.weight is None else {**stats, "error": self._mixed(error, share > 0)}

    @property
    def _parts(self) -> tuple[slice, slice]:
        """The states of the prefix, and those from the first decision to learn from on."""
        return slice(0, self.hyper.burn_in), slice(self.hyper.burn_in, None)

    def _mixed(self, error: Tensor, present: Tensor) -> Tensor:
        """The priorities [N] of sequences with errors [T, N] (section 2.3)."""
        eta, error = self.hyper.replay.prioritized.eta, error * present
        return eta * error.amax(0) + (1 - eta) * error.sum(0) / present.sum(0)

    def _learned(self, error: Array) -> None:
        """Sequences that begin in the first half of a learned one overlap it by half or more, and get its priority."""
        self.sampler.learned(self.near, np.broadcast_to(error.reshape(-1, 1), self.near.shape))


def _at(x: Tensor, ahead: Tensor) -> Tensor:
    """The rows [T * N, ...] of x [S, N, ...] that ``ahead`` [T, N] names."""
    return x[ahead, torch.arange(x.shape[1], device=x.device)].flatten(0, 1)
