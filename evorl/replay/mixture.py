"""A replay of rollouts, a part for each sampler: new rollouts go into every part, each gives its share of a minibatch.

The queue sets the pace. With a share q of minibatches of N rollouts, a gradient step is due for every q N new rollouts;
without a queue, for every N. A circular buffer is a queue whose rollouts are used K times, so K steps are due for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from evorl.replay.part import Encode, Part
from evorl.replay.rollouts import Array, Columns, Numbers
from evorl.replay.samplers.core import RolloutKeys, Sampler
from evorl.replay.samplers.queue import Queue, QueueKeys
from evorl.replay.samplers.registry import KINDS, TOLERANCE, RolloutSamplers, Sampling, options_of, shares
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict


class Shares:
    """The samplers that give a minibatch its rollouts, with their shares and options by name."""

    def __init__(self, sampling: Sampling, options: RolloutSamplers) -> None:
        """Raises `BadRequest` for shares that do not fit together."""
        self.shares = shares(sampling, options)
        self.keys: dict[str, RolloutKeys] = {name: options_of(name, options) for name in self.shares}
        if len(queues := [name for name, keys in self.keys.items() if isinstance(keys, QueueKeys)]) > 1:
            names = " and ".join(queues)
            raise BadRequest(
                f"{names} both say when a gradient step is due: give the share of one to the other", "sampling"
            )

    def sizes(self, batch: int) -> dict[str, int]:
        """Rollouts of each sampler in a minibatch. Raises `BadRequest` for a share that is no whole number of them."""
        for name, share in self.shares.items():
            if not _whole(share, batch):
                whole = (x for x in sorted(range(1, 2 * batch), key=lambda x: abs(x - batch)) if self._divides(x))
                other = next((f"; the nearest batch for these shares is {x}" for x in whole), "")
                raise BadRequest(
                    f"{share:g} of {batch} rollouts in a minibatch is {share * batch:g}, which is not whole; "
                    f"the nearest share is {max(round(share * batch), 1) / batch:g}{other}",
                    f"sampling.{name}",
                )
        return {name: round(share * batch) for name, share in self.shares.items()}

    def _divides(self, batch: int) -> bool:
        return all(_whole(share, batch) for share in self.shares.values())

    @property
    def compare(self) -> bool:
        """Whether a sampler compares feature vectors."""
        return any(KINDS.kind_of(name).compares for name in self.shares)

    def check(self, batch: int, fragment: int, learners: int = 1) -> None:
        """Raise `BadRequest` where a minibatch, a fragment of so many rollouts, or a learner's share does not fit."""
        sizes = self.sizes(batch)
        for name, size in sizes.items():
            keys = self.keys[name]
            needed = fragment + (size - 1 if isinstance(keys, QueueKeys) else 0)
            if keys.capacity is not None and keys.capacity < needed:
                raise BadRequest(
                    f"must be at least {needed}: {fragment} rollouts arrive at once", f"replay.{name}.capacity"
                )
        common = math.gcd(*sizes.values())  # each learner takes its share of each part
        if common % learners:
            most = max(n for n in range(1, learners) if common % n == 0)
            terms = ", ".join(f"{size} of {name}" for name, size in sizes.items())
            raise BadRequest(f"must divide the rollouts of a minibatch ({terms}); the nearest is {most}", "learners")


def _whole(share: float, batch: int) -> bool:
    """Whether a share of a minibatch is a whole number of rollouts, and not none."""
    size = round(share * batch)
    return size > 0 and abs(share * batch - size) <= TOLERANCE * batch


class Minibatch(NamedTuple):
    """Rollouts to learn from, those of each part side by side."""

    rollouts: dict[str, Array]  # each [N, ...]
    places: dict[str, Numbers]  # of each part
    ages: dict[str, float]  # of each part: gradient steps since its rollouts arrived, on average
    weights: Array | None  # [N] where a part corrects for its choice


class Mixture:
    """The parts of a replay in use, and what is due."""

    def __init__(
        self, mix: Shares, batch: int, fragment: int, fill_in: int, like: Columns, seed: int, compress: bool = False
    ) -> None:
        """``fragment``: rollouts that arrive at once. ``fill_in``: those that must be there before a step is due.
        ``compress``: keep observations in bytes compressed."""
        self.sizes, self.batch, self.fill_in = mix.sizes(batch), batch, fill_in
        self.slices = slices(self.sizes)
        self.keys = {name: seeds.key(seed, "replay", name) for name in self.sizes}
        plain = {name: x for name, x in like.items() if name != "features"}  # which only nearness needs
        self.parts = {}
        for name, size in self.sizes.items():
            keys, kind = mix.keys[name], KINDS.kind_of(name)
            rows = keys.rows(size, fragment)
            self.parts[name] = Part(kind(keys, rows, size), rows, like if kind.compares else plain)
        for part in self.parts.values() if compress else ():
            part.rollouts.compress()
        self.columns = [*plain]  # what a gradient step reads
        self.count = 0  # rollouts that arrived
        self.owed = 0  # of them, those that no gradient step was taken for; 0 with a queue, which counts its own
        self.queue = next((sampler for sampler in self._samplers if isinstance(sampler, Queue)), None)

    @property
    def _samplers(self) -> list[Sampler]:
        return [part.sampler for part in self.parts.values()]

    def insert(self, rollouts: Columns, step: int, encode: Encode) -> None:
        """Take new rollouts [N] after ``step`` gradient steps."""
        for name, part in self.parts.items():
            part.insert(rollouts, step, self.keys[name], encode)
        new = len(next(iter(rollouts.values())))
        self.count += new
        self.owed = 0 if self.queue is not None or self.count < self.fill_in else self.owed + new

    def due(self) -> bool:
        """Whether a gradient step may be taken now."""
        ready = self.owed >= self.batch if self.queue is None else self.queue.ready(self.sizes[self.queue.name])
        return self.count >= self.fill_in and ready

    def sample(self, step: int, encode: Encode) -> Minibatch:
        """Return the minibatch of gradient step ``step``: a function of the seed, the step and what the parts hold."""
        if self.queue is None:
            self.owed -= self.batch
        places = {
            name: part.sample(self.sizes[name], step, self.keys[name], encode) for name, part in self.parts.items()
        }
        taken = [part.rollouts.take(places[name], self.columns) for name, part in self.parts.items()]
        ages = {name: float(step - part.born[places[name]].mean()) for name, part in self.parts.items()}
        return Minibatch(_side_by_side(taken, self.columns), places, ages, self._weights(places))

    def prefetches(self, step: int) -> bool:
        """Whether a part has something to do ahead of gradient step ``step``."""
        return any(sampler.prefetches(step) for sampler in self._samplers)

    def prefetch(self, step: int, encode: Encode) -> None:
        """Do ahead what does not need gradient step ``step - 1``. Nothing else may use the replay meanwhile, but for
        `learned`."""
        for name, part in self.parts.items():
            if part.sampler.prefetches(step):
                part.prefetch(self.sizes[name], step, self.keys[name], encode)

    def learned(self, places: dict[str, Numbers], error: Array) -> None:
        """Give the samplers the errors [N, T] of the values of a minibatch's rollouts."""
        for name, where in self.slices.items():
            self.parts[name].sampler.learned(places[name], error[where])

    def metrics(self, step: int) -> dict[str, float]:
        return {name: x for part in self.parts.values() for name, x in part.metrics(step).items()}

    def advance(self, step: int) -> None:
        """Follow the schedules of the samplers to environment step ``step``."""
        for sampler in self._samplers:
            sampler.advance(step)

    @property
    def weighted(self) -> bool:
        """Whether a sampler weights rollouts and learns from their errors."""
        return any(sampler.weighs for sampler in self._samplers)

    def _weights(self, places: dict[str, Numbers]) -> Array | None:
        if not self.weighted:
            return None
        weights = np.ones(self.batch, np.float32)
        for name, where in self.slices.items():
            if (own := self.parts[name].sampler.weights(places[name])) is not None:
                weights[where] = own
        return weights

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        return {
            "count": self.count, "owed": self.owed,
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
        }  # fmt: skip

    def appended_rows(self) -> StateDict:
        """Return the part of the state that only grows."""
        return {"parts": {name: part.appended_rows() for name, part in self.parts.items()}}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state. Parts that it lacks, or that held rollouts of other shapes, begin empty."""
        for name, part in self.parts.items():
            if name in state["parts"]:
                part.load_state_dict(state["parts"][name])
        if all(part.count for part in self.parts.values()):
            self.count, self.owed = state["count"], state["owed"]


def slices(sizes: Mapping[str, int]) -> dict[str, slice]:
    """Where in a minibatch the rollouts of each part are, by how many there are of each."""
    ends = accumulate(sizes.values())
    return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}


def _side_by_side(parts: Sequence[Columns], names: Sequence[str]) -> dict[str, Array]:
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in names}
