"""Elite sampling: of more rollouts than are asked for, those that the present policy sees most like the one that acted.

The rule and its four strategies are those of the public platform "elite_buffer_vtrace". Features of a rollout come from
the network that acted, and from the present one when it may be sampled. Their distance says how off-policy it is. With
``lag`` a distance is kept and used again for so many gradient steps, and those of the next step's candidates can be
found while a gradient step is taken (`Elite.prefetch`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from evorl.replay.parts.core import BufferKeys, Encode, Part, annealed, draw
from evorl.replay.parts.distances import Distance, distance
from evorl.replay.rollouts import Array, Columns, Numbers
from evorl.util import seed as seeds
from evorl.util.types import AtLeastOne, Count, Natural

Strategy = Literal[1, 2, 3, 4]
NEVER = -(1 << 62)


@dataclass(frozen=True, kw_only=True)
class EliteKeys(BufferKeys):
    compares: ClassVar[bool] = True

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
    insertion: Literal["ring", "elite"] = "ring"
    """What leaves a full part for a new rollout: the oldest, or the most distant of some drawn ones."""
    insertion_candidates: Count = 20
    """How many are drawn then."""

    def part(self, size: int, fragment: int, like: Columns) -> Elite:
        return Elite(self, like)


class Elite(Part):
    name = "elite"

    def __init__(self, keys: EliteKeys, like: Columns) -> None:
        super().__init__(keys.capacity, like)
        self.keys, self.append_only = keys, keys.insertion == "ring"
        self.distance = distance(keys.distance, keys.p)
        self.last_distance: float | None = None  # mean of the last rollouts that were chosen, since any arrived
        self.last_encoded: float | None = None  # share of the last candidates that were encoded when they were drawn
        self.measured = np.zeros(keys.capacity)  # distance of the rollout in each place
        self.measured_at = np.full(keys.capacity, NEVER)  # gradient steps that had been taken then

    def factor(self, step: int) -> float:
        """Candidates for each rollout at a gradient step."""
        return annealed(self.keys.candidates, step, self.keys.anneal)

    def sample(self, size: int, step: int, key: int, encode: Encode) -> Numbers:
        drawn = self.drawn(size, step, key)
        if len(drawn) == size:
            self.last_encoded = 0.0
            return self.sampled(drawn)
        self.last_encoded = len(self._outdated(drawn, step)) / len(drawn)
        distances = self.recent_distances(drawn, step, encode)
        picked = pick(distances, self.chosen[drawn], size, self.keys.strategy)
        self.last_distance = float(distances[picked].mean())
        return self.sampled(drawn[picked])

    def drawn(self, size: int, step: int, key: int) -> Numbers:
        """The candidates of a gradient step, from what the part holds now; just ``size`` where none is to be left."""
        wanted = int(self.factor(step) * size)
        most = min(max(wanted, size), max(self.held, size))
        return draw(seeds.generator(key, "sample", step), self.held, most)

    def recent_distances(self, places: Numbers, step: int, encode: Encode) -> Array:
        """How far [N] these rollouts were from the policy at most ``lag`` gradient steps ago."""
        self._measure(self._outdated(places, step), step, encode)
        return self.measured[places]

    def prefetches(self, step: int) -> bool:
        return self.keys.lag > 0 and self.factor(step) > 1

    def prefetch(self, size: int, step: int, key: int, encode: Encode) -> None:
        if len(drawn := self.drawn(size, step, key)) > size:
            self._measure(self._outdated(drawn, step), step - 1, encode)

    def _outdated(self, places: Numbers, step: int) -> Numbers:
        """Those whose distance is too old for a gradient step."""
        return places[step - self.measured_at[places] > self.keys.lag] if self.keys.lag else places

    def _measure(self, places: Numbers, step: int, encode: Encode) -> None:
        """Note how far these rollouts are from the network after ``step`` gradient steps, which encodes them."""
        if len(places):
            self.measured[places], self.measured_at[places] = self.distances(places, encode), step

    def distances(self, places: Numbers, encode: Encode) -> Array:
        """How far [N] these rollouts are from the present policy."""
        found = self.rollouts.take(places)
        return self.distance(encode(found), found["features"])

    def insert(self, rollouts: Columns, step: int, key: int, encode: Encode) -> None:
        self.last_distance = self.last_encoded = None
        if self.append_only:
            return super().insert(rollouts, step, key, encode)
        new = len(rollouts["features"])
        room = min(self.capacity - self.held, new)
        places = np.concatenate([self.held + np.arange(room), self._evicted(new - room, step, key, encode)])
        self._put(places, rollouts, step)

    def _put(self, places: Numbers, rollouts: Columns, step: int) -> None:
        super()._put(places, rollouts, step)
        self.measured_at[places] = NEVER

    def _evicted(self, count: int, step: int, key: int, encode: Encode) -> Numbers:
        """The places [count] of the rollouts that leave: the most distant one of some drawn for each that arrives.

        No rollout is drawn for two of them, so where many arrive at once fewer may be drawn for each.
        """
        if count == 0:
            return np.arange(0)
        wanted = min(self.keys.insertion_candidates * count, self.held)
        drawn = draw(seeds.generator(key, "insert", self.count), self.held, wanted)
        distances = self.recent_distances(drawn, step, encode)
        groups = zip(np.array_split(drawn, count), np.array_split(distances, count), strict=True)
        return np.array([places[far.argmax()] for places, far in groups])

    def metrics(self, step: int) -> dict[str, float]:
        own = {f"replay/candidates_{self.name}": self.factor(step)}
        if self.last_encoded is not None:
            own[f"replay/encoded_{self.name}"] = self.last_encoded
        if self.last_distance is not None:
            own[f"replay/distance_{self.name}"] = self.last_distance
        return {**super().metrics(step), **own}

    def _tables(self) -> tuple[str, ...]:
        return (*super()._tables(), *(("measured", "measured_at") if self.keys.lag else ()))


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
