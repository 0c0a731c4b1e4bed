"""A replay of rollouts, made of parts: each new rollout goes into every part, each gives its share of a minibatch.

The queue sets the pace. With a share q of minibatches of N rollouts, a gradient step is due for every q N new rollouts;
without a queue, for every N. A circular buffer is a queue whose rollouts are used K times, so K steps are due for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from evorl.replay.parts.attentive import AttentiveKeys
from evorl.replay.parts.circular import CircularKeys
from evorl.replay.parts.core import Encode, PartKeys
from evorl.replay.parts.elite import EliteKeys
from evorl.replay.parts.prioritized import Prioritized, PrioritizedKeys
from evorl.replay.parts.queue import Queue, QueueKeys
from evorl.replay.parts.uniform import UniformKeys
from evorl.replay.rollouts import Array, Columns, Numbers
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict

TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a replay, and their shares of each minibatch, which sum to 1."""

    queue: QueueKeys = field(default_factory=QueueKeys)
    """Each new rollout once, in the order of arrival."""
    circular: CircularKeys = field(default_factory=CircularKeys)
    """Each new rollout several times, in a buffer that a gradient step goes one batch further in (IMPACT)."""
    uniform: UniformKeys = field(default_factory=UniformKeys)
    """All alike."""
    elite: EliteKeys = field(default_factory=EliteKeys)
    """Those that the present policy sees most like the one that acted."""
    attentive: AttentiveKeys = field(default_factory=AttentiveKeys)
    """Those most like the state that the policy is in now; keys as of elite."""
    prioritized: PrioritizedKeys = field(default_factory=PrioritizedKeys)
    """In proportion to the error of the values."""

    def __post_init__(self) -> None:
        total = sum(keys.share for _, keys in self.used())
        if round(abs(total - 1), 9) > TOLERANCE:
            said = " + ".join(f"{name} {keys.share:g}" for name, keys in self.used()) or "no part has one"
            raise BadRequest(f"the shares of its parts must sum to 1, and not to {total:.9g} ({said})")
        if self.queue.share and self.circular.share:
            raise BadRequest(
                "queue and circular both say when a gradient step is due: give the share of one to the other",
                "circular.share",
            )

    def used(self) -> Iterator[tuple[str, PartKeys]]:
        """The parts that have a share, by name."""
        named = ((one.name, getattr(self, one.name)) for one in fields(self))
        return ((name, keys) for name, keys in named if keys.share > 0)

    def sizes(self, batch: int) -> dict[str, int]:
        """Rollouts of each part in a minibatch. Raises `BadRequest` for a share that is no whole number of them."""
        for name, keys in self.used():
            if not _whole(keys.share, batch):
                whole = (x for x in sorted(range(1, 2 * batch), key=lambda x: abs(x - batch)) if self._divides(x))
                other = next((f"; the nearest batch for these shares is {x}" for x in whole), "")
                raise BadRequest(
                    f"{keys.share:g} of {batch} rollouts in a minibatch is {keys.share * batch:g}, which is not whole; "
                    f"the nearest share is {max(round(keys.share * batch), 1) / batch:g}{other}",
                    f"{name}.share",
                )
        return {name: round(keys.share * batch) for name, keys in self.used()}

    def _divides(self, batch: int) -> bool:
        return all(_whole(keys.share, batch) for _, keys in self.used())

    @property
    def features(self) -> bool:
        """Whether a part compares feature vectors."""
        return any(keys.compares for _, keys in self.used())

    def check(self, batch: int, fragment: int) -> None:
        """Raise `BadRequest` where a minibatch, or a fragment of so many rollouts, does not fit."""
        sizes = self.sizes(batch)
        for name, keys in self.used():
            needed = fragment + (sizes[name] - 1 if isinstance(keys, QueueKeys) else 0)
            if keys.capacity is not None and keys.capacity < needed:
                raise BadRequest(f"must be at least {needed}: {fragment} rollouts arrive at once", f"{name}.capacity")


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
        self, parts: Parts, batch: int, fragment: int, fill_in: int, like: Columns, seed: int, compress: bool = False
    ) -> None:
        """``fragment``: rollouts that arrive at once. ``fill_in``: those that must be there before a step is due.
        ``compress``: keep observations in bytes compressed."""
        self.sizes, self.batch, self.fill_in = parts.sizes(batch), batch, fill_in
        self.slices = slices(self.sizes)
        self.keys = {name: seeds.key(seed, "replay", name) for name in self.sizes}
        plain = {name: x for name, x in like.items() if name != "features"}  # which only nearness needs
        self.parts = {
            name: keys.part(self.sizes[name], fragment, like if keys.compares else plain) for name, keys in parts.used()
        }
        for part in self.parts.values() if compress else ():
            part.rollouts.compress()
        self.columns = [*plain]  # what a gradient step reads
        self.count = 0  # rollouts that arrived
        self.owed = 0  # of them, those that no gradient step was taken for; 0 with a queue, which counts its own
        self.queue = next((one for one in self.parts.values() if isinstance(one, Queue)), None)

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
        return any(part.prefetches(step) for part in self.parts.values())

    def prefetch(self, step: int, encode: Encode) -> None:
        """Do ahead what does not need gradient step ``step - 1``. Nothing else may use the replay meanwhile, but for
        `learned`."""
        for name, part in self.parts.items():
            if part.prefetches(step):
                part.prefetch(self.sizes[name], step, self.keys[name], encode)

    def learned(self, places: dict[str, Numbers], error: Array) -> None:
        """Tell the parts how wrong the values of a minibatch's rollouts were: errors [N, T]."""
        for name, where in self.slices.items():
            self.parts[name].learned(places[name], error[where])

    def metrics(self, step: int) -> dict[str, float]:
        return {name: x for part in self.parts.values() for name, x in part.metrics(step).items()}

    @property
    def prioritized(self) -> bool:
        return "prioritized" in self.parts

    def _weights(self, places: dict[str, Numbers]) -> Array | None:
        part = self.parts.get("prioritized")
        if not isinstance(part, Prioritized):
            return None
        weights = np.ones(self.batch, np.float32)
        weights[self.slices[part.name]] = part.weights(places[part.name])
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
