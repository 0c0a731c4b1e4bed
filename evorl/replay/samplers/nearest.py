"""Sampling by nearness: of more items than are asked for, those whose features are nearest to others.

`Nearest` draws lambda times as many candidates evenly. Lambda falls to 1, where sampling is uniform, without
replacement. What the features are compared with is up to a subclass. With ``lag`` a distance is kept and used again for
so many gradient steps, and those of the next step's candidates can be computed while a gradient step is taken
(`Nearest.prefetch`). The four strategies are those of the public platform "elite_buffer_vtrace".
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from evorl.replay.rollouts import Array, Numbers
from evorl.replay.samplers.core import BufferKeys, Memory, Sampler
from evorl.replay.samplers.distances import Distance, distance
from evorl.util import seed as seeds
from evorl.util.types import AtLeastOne, Count, Natural, StateDict

Strategy = Literal[1, 2, 3, 4]
Insertion = Literal["ring", "elite"]
NEVER = -(1 << 62)


@dataclass(frozen=True, kw_only=True)
class NearestTransitions:
    """Keys for transitions and sequences, whose features never change."""

    candidates: AtLeastOne = 4.0
    """Transitions drawn for each one that is chosen, at first (lambda)."""
    anneal: Count = 100_000
    """Gradient steps until it is 1, where sampling is uniform."""
    distance: Literal["cosine", "p_norm"] = "cosine"
    """How far states are apart: 1 - their cosine, or the Euclidean norm of their difference."""
    p: ClassVar[float] = 2.0
    strategy: ClassVar[Strategy] = 1
    lag: ClassVar[int] = 0
    insertion: ClassVar[Insertion] = "ring"
    insertion_candidates: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class NearestRollouts(BufferKeys):
    """Keys for rollouts."""

    distance: Distance = "p_norm"
    """How far features are apart: p_norm, cosine (1 - similarity) or kl (as logits)."""
    p: AtLeastOne = 2.0
    """Of the p-norm."""
    strategy: Strategy = 3
    """1: the nearest. 2: the nearest of each of equal subsets. 3: the least sampled, then the nearest. 4: the least
    sampled of each subset."""
    candidates: AtLeastOne = 6.0
    """Rollouts drawn for each one that is chosen, at first (lambda); falls to 1, where sampling is uniform."""
    anneal: Count = 20_000
    """Gradient steps until then."""
    lag: Natural = 1
    """Gradient steps that the distance of a candidate may be old; 0 encodes each when it is drawn, and not before."""
    insertion: Insertion = "ring"
    """What leaves a full part for a new rollout: the oldest, or the most distant of some drawn ones."""
    insertion_candidates: Count = 20
    """How many are drawn then."""


class Nearest(Sampler):
    compares: ClassVar[bool] = True

    def __init__(self, keys: NearestTransitions | NearestRollouts, rows: int, size: int) -> None:
        self.keys, self.append_only = keys, keys.insertion == "ring"
        self.distance = distance(keys.distance, keys.p)
        self.last_distance: float | None = None  # mean of the last items that were chosen, since any arrived
        self.last_encoded: float | None = None  # share of the last candidates that were encoded when they were drawn
        remembered = rows if keys.lag else 0
        self.held = 0  # items in the memory when the last ones had arrived
        self.measured = np.zeros(remembered)  # distance of the item in each row
        self.measured_at = np.full(remembered, NEVER)  # gradient steps that had been taken then

    @abstractmethod
    def distances(self, memory: Memory, items: Numbers, step: int) -> Array:
        """How far [N] the features of items are from what they are compared with, at a gradient step."""

    def factor(self, step: int) -> float:
        """Candidates for each item at a gradient step, lambda."""
        return annealed(self.keys.candidates, step, self.keys.anneal)

    def draw(self, memory: Memory, key: int, steps: range, size: int) -> Numbers:
        return np.stack([self._nearest(memory, key, step, size) for step in steps])

    def _nearest(self, memory: Memory, key: int, step: int, size: int) -> Numbers:
        candidates = self._candidates(memory, key, step, size)
        if len(candidates) == size:
            self.last_encoded = 0.0
            return candidates
        self.last_encoded = len(self._outdated(candidates, step)) / len(candidates)
        distances = self.recent_distances(memory, candidates, step)
        picked = pick(distances, memory.chosen(candidates), size, self.keys.strategy)
        self.last_distance = float(distances[picked].mean())
        return candidates[picked]

    def _candidates(self, memory: Memory, key: int, step: int, size: int) -> Numbers:
        """The candidates of a gradient step, from what the memory holds; just ``size`` where none is to be left."""
        wanted = int(self.factor(step) * size)
        most = min(max(wanted, size), max(memory.held, size))
        return memory.low + draw(memory.random(key, step), memory.held, most)

    def recent_distances(self, memory: Memory, items: Numbers, step: int) -> Array:
        """How far [N] these items were at most ``lag`` gradient steps ago."""
        if not self.keys.lag:
            return self.distances(memory, items, step)
        self._measure(memory, self._outdated(items, step), step)
        return self.measured[items]

    def prefetches(self, step: int) -> bool:
        return self.keys.lag > 0 and self.factor(step) > 1

    def prefetch(self, memory: Memory, key: int, step: int, size: int) -> None:
        if len(candidates := self._candidates(memory, key, step, size)) > size:
            self._measure(memory, self._outdated(candidates, step), step - 1)

    def _outdated(self, items: Numbers, step: int) -> Numbers:
        """Those whose distance is too old for a gradient step."""
        return items[step - self.measured_at[items] > self.keys.lag] if self.keys.lag else items

    def _measure(self, memory: Memory, items: Numbers, step: int) -> None:
        """Note how far these items are by the network after ``step`` gradient steps, which encodes them."""
        if len(items):
            self.measured[items], self.measured_at[items] = self.distances(memory, items, step), step

    # -------------------------------------------------------------- keeping

    def places(self, memory: Memory, key: int, step: int, new: int) -> Numbers:
        if self.keys.insertion == "ring":
            return super().places(memory, key, step, new)
        room = min(memory.rows - memory.held, new)
        return np.concatenate([memory.held + np.arange(room), self._evicted(memory, key, step, new - room)])

    def _evicted(self, memory: Memory, key: int, step: int, count: int) -> Numbers:
        """The rows [count] of the items that leave: the most distant one of some drawn for each that arrives.

        No item is drawn for two of them, so where many arrive at once fewer may be drawn for each.
        """
        if count == 0:
            return np.arange(0)
        wanted = min(self.keys.insertion_candidates * count, memory.held)
        candidates = draw(seeds.generator(key, "insert", memory.count), memory.held, wanted)
        distances = self.recent_distances(memory, candidates, step)
        groups = zip(np.array_split(candidates, count), np.array_split(distances, count), strict=True)
        return np.array([items[far.argmax()] for items, far in groups])

    def arrived(self, memory: Memory, places: Numbers) -> None:
        self.last_distance = self.last_encoded = None
        self.held = memory.held
        if self.keys.lag:
            self.measured_at[places] = NEVER

    # -------------------------------------------------------------- state

    def metrics(self, step: int) -> dict[str, float]:
        own = {f"replay/candidates_{self.name}": self.factor(step)}
        if self.last_encoded is not None:
            own[f"replay/encoded_{self.name}"] = self.last_encoded
        if self.last_distance is not None:
            own[f"replay/distance_{self.name}"] = self.last_distance
        return own

    def state_dict(self) -> StateDict:
        held = slice(0, self.held)
        tables = {"measured": self.measured, "measured_at": self.measured_at}
        return {name: x[held].copy() for name, x in tables.items()} if self.keys.lag else {}

    def load_state_dict(self, state: StateDict) -> None:
        if self.keys.lag:
            self.held = len(state["measured"])
            self.measured[: self.held], self.measured_at[: self.held] = state["measured"], state["measured_at"]


def pick(distances: Array, chosen: Array, size: int, strategy: Strategy) -> Numbers:
    """Return the indices [size] of the candidates that a strategy picks, by their distances and how often they were
    sampled before; equal ones in the order in which they were drawn."""
    nearest = distances.argsort(kind="stable")
    if strategy in (1, 3):
        order = nearest if strategy == 1 else np.lexsort((distances, chosen))
        return order[:size]
    subsets = np.array_split(nearest, size)
    if strategy == 2:
        return np.array([subset[0] for subset in subsets])
    return np.array([subset[chosen[subset].argmin()] for subset in subsets])


def annealed(candidates: float, step: int, anneal: int) -> float:
    """Lambda at a gradient step: linear from ``candidates`` at step 0 to 1 at step ``anneal``, and 1 from then on."""
    return max(candidates - (candidates - 1) * step / anneal, 1.0)


def draw(generator: np.random.Generator, held: int, size: int) -> Numbers:
    """Draw items [size] below ``held``, each as often as the others or once more: without replacement if possible."""
    whole, rest = divmod(size, held)
    return np.concatenate([np.tile(np.arange(held), whole), generator.choice(held, rest, replace=False)])
