"""Many policies of one shape acting together: their weights are stacked, so all decide in one forward pass.

Letters in shapes: K policies, S slots of each (policy k plays slots k S .. k S + S - 1), D weights of an actor.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap

from evorl.mdp.core import Spec
from evorl.nets.capture import TraceCache
from evorl.nets.distributions import sample, to_world
from evorl.nets.flat import Layout
from evorl.nets.policy import Net, Policy
from evorl.nets.statistics import Moments
from evorl.rl.core import Decision
from evorl.util import seed as seeds


class Actor:
    """The actor's share of a policy network, as a flat genome [D], and how it decides."""

    def __init__(self, spec: Spec, net: Net) -> None:
        self.spec, self.net = spec, net
        self.policy = Policy(spec, replace(net, shared=True))
        self.policy.requires_grad_(False)
        named = dict(self.policy.named_parameters())
        self.names = [name for name in named if not name.startswith("value.") and name != "log_std"]
        self.layout = Layout(tuple(self.names), tuple(named[name].shape for name in self.names))
        self.rest = {name: torch.zeros_like(x) for name, x in named.items() if name not in self.names}
        self.records = TraceCache()  # here, since stacked policies last one task and their actor a whole run

    @property
    def size(self) -> int:
        """Number of weights, D."""
        return sum(self.layout.sizes)

    def fresh(self, *words: int | str) -> NDArray[np.float32]:
        """Draw initial weights [D] from the random stream that ``words`` name."""
        self.policy.initialise(torch.Generator().manual_seed(seeds.key(*words) >> 1))
        return self.layout.flatten({k: v for k, v in self.policy.named_parameters() if k in self.names}).numpy()

    def whole(self, genome: NDArray[np.float32], policy: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the named parameters of a policy with its actor replaced by this genome; its critic stays."""
        parts = self.layout.unflatten(torch.from_numpy(genome))
        whole = {name: x.clone() for name, x in policy.items()}
        for name, x in parts.items():
            whole[name][: len(x)] = x  # the actor's layers lie before the critic's
        return whole

    def share(self, policy: dict[str, Tensor]) -> NDArray[np.float32]:
        """Return the genome [D] of a policy's actor: the inverse of `whole`."""
        shapes = dict(zip(self.names, self.layout.shapes, strict=True))
        return self.layout.flatten({name: policy[name][: shape[0]] for name, shape in shapes.items()}).numpy()

    def __call__(self, theta: Tensor, inputs: tuple[Tensor, ...], *memory: Tensor) -> tuple[Tensor, ...]:
        """Raw outputs of rows [S, ...] under weights [D]; with a recurrent core its carry [2, S, H] too."""
        parameters = {**self.layout.unflatten(theta), **self.rest}
        if not memory:
            return (functional_call(self.policy, parameters, (inputs,)).raw,)
        carry, start = memory
        out = functional_call(self.policy, parameters, (tuple(x[None] for x in inputs), carry, start[None]))
        return out.raw[0], out.carry


class StackedPolicies:
    """K deterministic policies with the acting side of a `Learner`. Rows are the slots of all, policy by policy.

    With ``moments`` their inputs are normalised by the same statistics, which do not change while they play.
    """

    def __init__(self, actor: Actor, weights: NDArray[np.float32], moments: Moments | None = None) -> None:
        self.actor, self.spec, self.moments = actor, actor.spec, moments
        self.theta = torch.from_numpy(weights)

    def carry(self, slots: int) -> Tensor | None:
        return self.actor.policy.carry(slots)

    def act(
        self,
        inputs: tuple[Tensor, ...],
        legal: Tensor | None,
        noise: Tensor,
        carry: Tensor | None,
        start: Tensor | None,
    ) -> Decision:
        statistics = () if self.moments is None else self.moments.tensors(noise.device)
        with torch.inference_mode():
            arguments = (self.theta, statistics, inputs, legal, noise, carry, start)
            action, played, carry = self.actor.records.replay(self._act, *arguments)
            nothing = torch.zeros(len(noise))
        return Decision(action, played, nothing, nothing[:, None], carry)

    @torch.no_grad()
    def _act(
        self, theta: Tensor, statistics: tuple[Tensor, ...], inputs: tuple[Tensor, ...], legal: Tensor | None,
        noise: Tensor, carry: Tensor | None, start: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
        """Actions, as the policies and as the world have them, and the carry."""
        crowd = len(theta)
        if self.moments is not None:
            inputs = self.moments.normalize(statistics, inputs)
        rows = tuple(x.unflatten(0, (crowd, -1)) for x in inputs)
        if carry is not None and start is not None:
            memory = (carry.unflatten(1, (crowd, -1)), start.unflatten(0, (crowd, -1)))
            raw, after = vmap(self.actor, (0, 0, 1, 0), (0, 1))(theta, rows, *memory)
            carry = after.flatten(1, 2)
        else:
            (raw,) = vmap(self.actor)(theta, rows)
        raw = raw.flatten(0, 1)
        action = sample(self.spec.action, raw, self._log_std(raw), legal, noise)
        return action, to_world(self.spec.action, action), carry

    def _log_std(self, raw: Tensor) -> Tensor | None:
        """Return a log standard deviation for a Box with a free one; its value has no effect without noise."""
        log_std = self.actor.policy.log_std
        return None if log_std is None else torch.zeros_like(log_std)
