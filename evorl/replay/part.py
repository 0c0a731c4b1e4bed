"""A part of a replay of rollouts: the rollouts that one sampler keeps and chooses from.

Letters in shapes: N rollouts, T decisions of a rollout, F numbers of a feature vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evorl.replay.rollouts import Array, Columns, Numbers, Rollouts
from evorl.replay.samplers.core import Memory, Sampler
from evorl.util import seed as seeds
from evorl.util.saved import saved
from evorl.util.types import AppendedRows, StateDict

Encode = Callable[[Columns], Array]
"""The present network's features [N, T, F] of rollouts."""
TABLES = ("number", "born", "chosen")


class Part:
    """``capacity`` places for rollouts, and the sampler that chooses from them."""

    def __init__(self, sampler: Sampler, capacity: int, like: Columns) -> None:
        self.sampler, self.capacity = sampler, capacity
        self.rollouts = Rollouts(like, capacity)
        self.count = 0  # rollouts that arrived so far
        self.number = np.zeros(capacity, np.int64)  # of the rollout in each place, in the order of arrival
        self.born = np.zeros(capacity, np.int64)  # gradient steps that had been taken when it arrived
        self.chosen = np.zeros(capacity, np.int64)  # how often it was sampled

    @property
    def name(self) -> str:
        return self.sampler.name

    @property
    def held(self) -> int:
        """Rollouts in the part: those in the places below this number."""
        return min(self.count, self.capacity)

    def memory(self, encode: Encode) -> PartMemory:
        """What the sampler sees of the part at present."""
        return PartMemory(self.capacity, self.count, 0, self.held, self, encode)

    def insert(self, rollouts: Columns, step: int, key: int, encode: Encode) -> None:
        """Take the next rollouts [N], which arrive after ``step`` gradient steps."""
        new = _length(rollouts)
        places = self.sampler.places(self.memory(encode), key, step, new)
        self.rollouts.put(places, rollouts)
        self.number[places], self.born[places], self.chosen[places] = self.count + np.arange(new), step, 0
        self.count += new
        self.sampler.arrived(self.memory(encode), places)

    def sample(self, size: int, step: int, key: int, encode: Encode) -> Numbers:
        """Return the places [size] of the rollouts for gradient step ``step``: a pure function of key, step and what
        the part holds."""
        (items,) = self.sampler.draw(self.memory(encode), key, range(step, step + 1), size)
        places: Numbers = items % self.capacity
        np.add.at(self.chosen, places, 1)
        return places

    def prefetch(self, size: int, step: int, key: int, encode: Encode) -> None:
        """Do ahead what `sample` will need (`Sampler.prefetch`)."""
        self.sampler.prefetch(self.memory(encode), key, step, size)

    def metrics(self, step: int) -> dict[str, float]:
        """Numbers about the part's state, by the names of metrics."""
        return {f"replay/size_{self.name}": float(self.held), **self.sampler.metrics(step)}

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        """Return what the part holds, by number in a ring, and what its choices depend on."""
        rows = self.appended_rows() or {"rollouts": AppendedRows(0, self.held, self._read).whole()}
        tables = {name: x[: self.held] for name, x in saved(self, TABLES).items()}
        return {"count": self.count, **rows, **tables, **self.sampler.state_dict()}

    def appended_rows(self) -> StateDict:
        """Return the part of the state that only grows; empty unless the sampler is `Sampler.append_only`."""
        if not self.sampler.append_only:
            return {}
        return {"rollouts": AppendedRows(self.count - self.held, self.count, self._read)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state. A part of rollouts with other shapes, or of another capacity that was full, begins empty."""
        saved = state["rollouts"].whole() if isinstance(state["rollouts"], AppendedRows) else state["rollouts"]
        if not saved["rows"] or not self.rollouts.fits(saved["rows"]):
            return
        size = _length(saved["rows"])
        if size != min(state["count"], self.capacity):
            return
        self.count = state["count"]
        self.rollouts.put((saved["first"] + np.arange(size)) % self.capacity, saved["rows"])
        for name in TABLES:
            getattr(self, name)[:size] = state[name]
        self.sampler.load_state_dict(state)

    def _read(self, first: int, end: int) -> dict[str, Array]:
        return self.rollouts.take(np.arange(first, end) % self.capacity)


@dataclass(frozen=True)
class PartMemory(Memory):
    """A part as its sampler sees it: items are named by their places."""

    part: Part
    encode: Encode

    def current(self, step: int) -> int:
        """The newest rollout: the policy is in its last state."""
        return int(self.part.number[: self.held].argmax())

    def features(self, items: Numbers) -> Array:
        return self.encode(self.part.rollouts.take(items))

    def acted(self, items: Numbers) -> Array:
        return self.part.rollouts.take(items, ["features"])["features"]

    def chosen(self, items: Numbers) -> Numbers:
        times: Numbers = self.part.chosen[items]
        return times

    def random(self, key: int, step: int) -> np.random.Generator:
        return seeds.generator(key, "sample", step)


def _length(rollouts: Columns) -> int:
    return len(next(iter(rollouts.values())))
