"""Coevolution of two populations, one for each side of a game.

Hillis 1990, Co-evolving parasites improve simulated evolution as an optimization procedure; Rosin and Belew 1997, New
methods for competitive coevolution. A member learns its side of the game against the present policies of the other
population (*complete mixing*), and is judged by the points that it takes from them. Each population evolves as in PBT,
by itself: members copy, and are compared with, those of their own side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evorl.ec import pbt
from evorl.ec.core import Objective
from evorl.ec.opposing import Match
from evorl.ec.pbt import PBT
from evorl.ec.space import Space
from evorl.util.errors import BadRequest
from evorl.util.types import Count


@dataclass(frozen=True, kw_only=True)
class Coevolution(PBT):
    """Two populations, each of which evolves as in PBT against the other one."""

    population: Count = 16
    """Individuals, half of them for each side."""
    objectives: tuple[Objective, ...] = ("points",)
    """Results to maximise; points: those of the games that it learned from, against the other population."""
    opponents: Literal["world", "population"] = "population"
    """Who plays the other side: the present policies of the other population."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population % 2:
            raise BadRequest(f"must be even, as each side has half of it: {self.population}", "population")
        if not self.opposes:
            raise BadRequest("each population plays the other one; take opponents=population", "opponents")

    @property
    def sides(self) -> int | None:
        return 2

    @property
    def halves(self) -> bool:
        return True

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)


class Strategy(pbt.Strategy):
    """The first half of the members has side 0, the others have side 1."""

    def side(self, member: int) -> int:
        return int(member >= self.hyper.population // 2)

    def met(self, member: int) -> Sequence[int]:
        return [k for k in range(self.hyper.population) if self.side(k) != self.side(member)]

    def compared(self, member: int) -> Sequence[int]:
        return [k for k in range(self.hyper.population) if self.side(k) == self.side(member)]

    def begins_as(self, member: int, individual: int) -> int:
        """Where the run starts from another one: the first of its side, who has the best policy of that side."""
        first = self.side(member) * (self.hyper.population // 2)
        return first if self.space.takes_over(first) else individual

    def opponents(self, individual: int) -> list[Match]:
        side = self.side(self._member[individual])
        return [
            match._replace(by_side=(0.0, match.chance) if side else (match.chance, 0.0))
            for match in super().opponents(individual)
        ]

    def about(self, individual: int) -> dict[str, Any]:
        return {"side": self.side(self._member[individual])}
