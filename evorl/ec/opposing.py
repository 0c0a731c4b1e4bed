"""The interfaces of evolvers whose individuals play each other, beside that of every evolver (`evorl.ec.core`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from evorl.ec.core import Evaluation, Individual


class Match(NamedTuple):
    """An opponent of an individual, and how likely it plays a game."""

    number: int
    """Of the player; the individual tells its games by it."""
    chance: float
    policy: Individual | None
    """Whose weights it plays with; None for those of the individual itself, which change as it learns."""
    by_side: tuple[float, ...] = ()
    """How likely it plays where the individual has side 0, 1, ...; empty: as likely whatever side it has."""


@runtime_checkable
class Opposing(Protocol):
    """An evolver whose individuals learn in games against each other.

    An individual comes back with its games in its memory (``games``: the ``opponents``' numbers and the individual's
    ``points``, in order), and with the memory that it acts with (``acting``).

    An individual with a ``match`` in its memory has no weights and does not learn. Of its opponents, the policy
    ``player`` plays so many ``games`` with each of ``others``, perhaps itself, half of them on either side, under a
    ``key``.
    It comes back with what the player ``earned`` on average, as half of what it earned more than the other: [N, 2], on
    side 0 and on side 1.
    """

    def opponents(self, individual: int) -> list[Match]:
        """The opponents of an individual that is due, by its id."""
        ...

    def about(self, individual: int) -> dict[str, Any]:
        """What a line of population.jsonl says of an individual that is due, beside what it says of all."""
        ...


@runtime_checkable
class Ranking(Opposing, Protocol):
    """An evolver that ranks its individuals by their games against each other, not by the world's evaluation.

    ``ranked_by`` names what `score` is.
    """

    ranked_by: ClassVar[str]

    @property
    def kept(self) -> Sequence[Individual]:
        """Individuals, also beside the population, whose policies stay as they are and may play."""
        ...

    @property
    def leader(self) -> Evaluation | None:
        """Who is best against the others; None before anybody has played."""
        ...

    def score(self, evaluation: Evaluation) -> float:
        """How good one of the population is against the others, from 0 to 1: what ranks them for people."""
        ...


@runtime_checkable
class Tabular(Protocol):
    """An evolver that has a table of payoffs, a new one with each generation."""

    def table(self) -> dict[str, Any]:
        """The table, as a line of a file: plain data."""
        ...
