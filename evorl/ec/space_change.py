"""From one space into another: what becomes of places and of steps where genes, or their bounds, change.

Genes are known by their names. One whose numbers mean the same in both spaces (the same choices, or both logarithmic,
or both not) keeps its coordinate, brought within the new bounds; another one keeps its value if the new gene knows it.
A gene that is new begins at the value that everybody had until now, or is drawn where its range does not have that.
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
    """From the space ``before`` into the one of ``now``, with as many weights."""

    before: Space
    now: Space
    usual: Mapping[str, Value]
    """What genes stand for where individuals have none of that name."""
    seed: int

    @cached_property
    def kept(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Genes, then and now, whose coordinates mean the same."""
        then = {gene.name: place for place, gene in enumerate(self.before.genes)}
        pairs = [
            (then[gene.name], place)
            for place, gene in enumerate(self.now.genes)
            if gene.name in then and same_unit(self.before.genes[then[gene.name]], gene)
        ]
        a, b = np.array(pairs, np.intp).reshape(-1, 2).T
        return a, b

    @cached_property
    def fresh(self) -> NDArray[np.bool_]:
        """The genes [G] of which nothing is known but their values: new ones, those of another measure, and those
        that had no choice."""
        fresh = np.ones(len(self.now.genes), bool)
        then, here = self.kept
        fresh[here] = (self.before.high == self.before.low)[then]
        return fresh

    def genes(self, x: Coordinates, number: int) -> Coordinates:
        """Coordinates [G] of the individual of a number."""
        drawn = self.now.sample(seeds.generator(self.seed, "remap", number), 1)[0]
        moved = self.now.coordinates({**self._possible, **self.before.values(x)}, drawn)
        then, here = self.kept
        moved[here] = x[then]
        return self.now.clip(moved)

    @cached_property
    def _possible(self) -> dict[str, Value]:
        """What is usual, where the new genes have it."""
        known = {gene.name: gene for gene in self.now.genes}
        return {name: x for name, x in self.usual.items() if name in known and known[name].has(x)}

    def place(self, x: Coordinates, number: int = 0) -> Coordinates:
        """A vector [G + D], as `Space.vector` makes them."""
        count = len(self.before.genes)
        unit = self.now.vector(self.genes(self.before.coordinates_of(x), number), None)
        return np.concatenate([unit, x[count:]])

    def scaled(self, x: ArrayLike, power: int, fresh: ArrayLike) -> NDArray[np.float64]:
        """Numbers [..., G + D] in units of the genes' ranges to a power (a step 1, a variance 2, a slope -1);
        ``fresh`` for the genes that are new."""
        x = np.asarray(x, np.float64)
        then, here = self.kept
        ratio = self.before.range[then] / self.now.range[here]
        moved = np.array(np.broadcast_to(fresh, (*x.shape[:-1], self.now.size)), np.float64)
        old = ~self.fresh[here]
        moved[..., here[old]] = (x[..., then] * ratio**power)[..., old]
        moved[..., len(self.now.genes) :] = x[..., len(self.before.genes) :]
        return moved

    def individuals(self, packed: Mapping[str, Any]) -> StateDict:
        """Those that `evorl.ec.core.pack` took, packed."""
        genes = zip(np.asarray(packed["genes"]), packed["id"], strict=True)
        return {**packed, "genes": np.array([self.genes(x, number) for x, number in genes])}

    def evaluations(self, packed: Mapping[str, Any]) -> StateDict:
        """Those that `evorl.ec.core.pack_evaluations` took, packed."""
        return {**packed, "individuals": self.individuals(packed["individuals"])}


def same_unit(a: Gene, b: Gene) -> bool:
    """Whether a coordinate stands for the same in two genes of one name."""
    return a.choices == b.choices and a.log == b.log
