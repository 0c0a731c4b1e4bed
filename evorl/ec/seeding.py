"""Searches that a process can follow by seeds, without weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from evorl.util.types import StateDict

if TYPE_CHECKING:
    from evorl.ec.core import Evaluation, Individual, Metrics, Objectives


class Seeded(Protocol):
    """The state of a search that a process can follow by seeds, without weights.

    Each individual is a pure function of the parameters and its index in a generation. The next parameters are a pure
    function of the parameters and the generation's fitnesses. Processes with the same start and the same fitnesses
    have the same bits; `hash` checks this in a few bytes.
    """

    generation: int
    """Generations that the parameters have learned from."""

    def individual_at(self, generation: int, index: int) -> Individual:
        """The individual at an index. Raises ValueError where the parameters belong to another generation."""
        ...

    def update(self, fitness: Objectives) -> Metrics:
        """Learn from the fitnesses [N] of this whole generation, in order of index; NaN means failed."""
        ...

    def hash(self) -> str:
        """A hash of the parameters and their generation."""
        ...

    def state_dict(self) -> StateDict:
        """The state for a process that joins; the only message whose size grows with the number of parameters."""
        ...

    def load_state_dict(self, state: StateDict) -> None: ...


@runtime_checkable
class Seeding(Protocol):
    """A synchronous evolver with `Seeded` individuals: id i is index i mod N of generation i div N."""

    centre: Seeded
    whole: bool
    """Whether proposals carry their weights."""

    @property
    def arrived(self) -> Sequence[Evaluation]:
        """The evaluations of the current generation that have arrived."""
        ...
