"""Policies that do not learn, of one learner's form: opponents, and the players of a payoff matrix.

Letters in shapes: K places, S rows of each (place k decides for rows k S .. k S + S - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from evorl.nets.capture import TraceCache
from evorl.nets.distributions import to_world
from evorl.nets.policy import Output, Policy
from evorl.rl.core import Decision, Hyper
from evorl.rl.network_learner import NetworkLearner

OF_ACTING = ("policies", "exploration", "dueling", "noisy", "distribution", "atoms", "support")
"""Keys of some algorithms that decide how their policies act."""


class FrozenPolicies:
    """K policies that decide in one forward pass; the acting side of a `Learner`.

    The bits of a row depend on S, on its own inputs and noise, and on the policy in its place: not on the other places.
    """

    def __init__(self, learner: NetworkLearner[Any], places: int) -> None:
        """``learner`` has the form of all policies. Its own weights are in every place at first."""
        self.learner, self.spec, self.places = learner, learner.spec, places
        self.weights = [torch.stack([x] * places) for x in learner.weights()]
        """What each place acts with, as `Learner.weights` lists it: each [K, ...]."""
        self._records = TraceCache()
        self._parameters = self._named()

    def put(self, place: int, weights: Sequence[Tensor]) -> None:
        """Let the policy with these weights (`Learner.weights`) decide for the rows of a place."""
        for stacked, x in zip(self.weights, weights, strict=True):
            stacked[place] = x

    def extend(self, places: int) -> None:
        """Add so many places, which have the weights of the last one at first."""
        self.weights = [torch.cat([x, x[-1:].expand(places, *x.shape[1:])]) for x in self.weights]
        self.places += places
        self._parameters = self._named()

    def _named(self) -> dict[str, Tensor]:
        """The parameters [K, ...] of a network of batched products, as views; nothing of others."""
        batched = isinstance(self.learner.policy, Policy) and self.learner.policy.batched
        return vmap(self.learner.layout.unflatten)(self.weights[0]) if batched else {}

    def carry(self, slots: int) -> Tensor | None:
        return self.learner.carry(slots)

    def act(
        self,
        inputs: tuple[Tensor, ...],
        legal: Tensor | None,
        noise: Tensor,
        carry: Tensor | None,
        start: Tensor | None,
    ) -> Decision:
        if not self.learner.hyper.policy_head:
            noise = torch.zeros_like(noise)  # action values: the greedy policy is the one that was learned
        theta, statistics = self.weights[0], tuple(self.weights[1 + len(self.learner.extra) :])
        with torch.inference_mode():
            arguments = (self._parameters or theta, self.learner.extra, statistics, inputs, legal, noise, carry, start)
            action, played, carry = self._records.replay(self._act, *arguments)
            nothing = torch.zeros(len(noise))
        return Decision(action, played, nothing, nothing[:, None], carry)

    @torch.no_grad()
    def _act(
        self, theta: Tensor | dict[str, Tensor], extra: tuple[Tensor, ...], statistics: tuple[Tensor, ...],
        inputs: tuple[Tensor, ...], legal: Tensor | None, noise: Tensor, carry: Tensor | None, start: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
        """Actions, as the policies and as the world have them, and the carry. ``theta``: also as `_named`."""
        rows = tuple(x.unflatten(0, (self.places, -1)) for x in inputs)
        if isinstance(theta, dict):
            assert isinstance(self.learner.policy, Policy)
            raw = self.learner.policy.raw_of_several(theta, vmap(self.learner.normalized)(statistics, rows))
            log_std = theta.get("log_std", raw[:0])
        elif carry is not None and start is not None:
            memory = (carry.unflatten(1, (self.places, -1)), start.unflatten(0, (self.places, -1)))
            raw, log_std, after = vmap(self._forward, (0, 0, 0, 1, 0), (0, 0, 1))(theta, statistics, rows, *memory)
            carry = after.flatten(1, 2)
        else:
            raw, log_std = vmap(self._forward)(theta, statistics, rows)
        raw, each = raw.flatten(0, 1), raw.shape[1]
        deviation = log_std.repeat_interleave(each, 0) if log_std.numel() else None
        out = Output(raw, deviation, raw[:, :0], None, raw[:, :0])
        action, _ = self.learner.decide(out, legal, noise, extra)
        return action, to_world(self.spec.action, action), carry

    def _forward(
        self, theta: Tensor, statistics: tuple[Tensor, ...], inputs: tuple[Tensor, ...], *memory: Tensor
    ) -> tuple[Tensor, ...]:
        """Raw outputs [S, ...], the free log standard deviation [A] (or none, [0]), and with a core its carry."""
        if not memory:
            out = self.learner.forward(theta, statistics, inputs)
            return out.raw, _or_nothing(out.log_std, theta)
        carry, start = memory
        out = self.learner.forward(theta, statistics, tuple(x[None] for x in inputs), carry, start[None])
        assert out.carry is not None
        return out.raw[0], _or_nothing(out.log_std, theta), out.carry


def form_of(hyper: Hyper) -> str:
    """What the algorithms of policies of one world must have in common, so that these decide in one pass."""
    own = {name: getattr(hyper, name, None) for name in OF_ACTING}
    return repr([type(hyper), hyper.net, hyper.normalize_inputs, own])


def _or_nothing(x: Tensor | None, theta: Tensor) -> Tensor:
    return theta[:0] if x is None else x
