"""From one space into another: positions and steps when genes, or their bounds, change.

Genes are matched by name. A gene whose coordinates mean the same in both spaces (the same choices, both logarithmic, or
both linear) keeps its coordinate, clipped to the new bounds. Another gene keeps its value if the new one can have it. A
new gene starts at the value that all individuals had before, or is drawn if its range does not contain that value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evorl.ec.space import Coordinates, Gene, Space, Value
from evorl.util import seed as seeds
from evorl.util.types import StateDict


@dataclass(frozen=True)
class SpaceChange:
    """From the space ``before`` into the space ``present``, with the same number of weights."""

    before: Space
    present: Space
    usual: Mapping[str, Value]
    """The values that individuals without a gene of that name have."""
    seed: int

    @cached_property
    def kept(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Places of the genes whose coordinates mean the same: in the space before, and in the present one."""
        place_of = {gene.name: place for place, gene in enumerate(self.before.genes)}
        pairs = [
            (place_of[gene.name], place)
            for place, gene in enumerate(self.present.genes)
            if gene.name in place_of and same_unit(self.before.genes[place_of[gene.name]], gene)
        ]
        a, b = np.array(pairs, np.intp).reshape(-1, 2).T
        return a, b

    @cached_property
    def fresh(self) -> NDArray[np.bool_]:
        """The genes [G] without usable coordinates: new, of another scale, or with one choice before."""
        fresh = np.ones(len(self.present.genes), bool)
        source, target = self.kept
        fresh[target] = (self.before.high == self.before.low)[source]
        return fresh

    def genes(self, x: Coordinates, number: int) -> Coordinates:
        """Coordinates [G] of the individual with a number."""
        drawn = self.present.sample(seeds.generator(self.seed, "remap", number), 1)[0]
        moved = self.present.coordinates({**self._possible, **self.before.values(x)}, drawn)
        source, target = self.kept
        moved[target] = x[source]
        return self.present.clip(moved)

    @cached_property
    def _possible(self) -> dict[str, Value]:
        """The usual values that the new genes can have."""
        known = {gene.name: gene for gene in self.present.genes}
        return {name: x for name, x in self.usual.items() if name in known and known[name].has(x)}

    def place(self, x: Coordinates, number: int = 0) -> Coordinates:
        """A vector [G + D], as `Space.vector` makes them."""
        count = len(self.before.genes)
        unit = self.present.vector(self.genes(self.before.coordinates_of(x), number), None)
        return np.concatenate([unit, x[count:]])

    def scaled(self, x: ArrayLike, power: int, fresh: ArrayLike) -> NDArray[np.float64]:
        """Numbers [..., G + D] in units of the genes' ranges to a power (a step 1, a variance 2, a slope -1);
        ``fresh`` for the genes that are new."""
        x = np.asarray(x, np.float64)
        source, target = self.kept
        ratio = self.before.range[source] / self.present.range[target]
        moved = np.array(np.broadcast_to(fresh, (*x.shape[:-1], self.present.size)), np.float64)
        kept = ~self.fresh[target]
        moved[..., target[kept]] = (x[..., source] * ratio**power)[..., kept]
        moved[..., len(self.present.genes) :] = x[..., len(self.before.genes) :]
        return moved

    def individuals(self, packed: Mapping[str, Any]) -> StateDict:
        """Packed individuals (`evorl.ec.core.pack`), moved and packed again."""
        genes = zip(np.asarray(packed["genes"]), packed["id"], strict=True)
        return {**packed, "genes": np.array([self.genes(x, number) for x, number in genes])}

    def evaluations(self, packed: Mapping[str, Any]) -> StateDict:
        """Packed evaluations (`evorl.ec.core.pack_evaluations`), moved and packed again."""
        return {**packed, "individuals": self.individuals(packed["individuals"])}


def same_unit(a: Gene, b: Gene) -> bool:
    """Whether a coordinate means the same in two genes of one name."""
    return a.choices == b.choices and a.log == b.log
