"""The config of training against opponents: which snapshots are kept, and which of them plays a game."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Literal

from evorl.util.types import Count, Fraction

Choice = Literal["uniform", "newest", "hard", "even"]


@dataclass(frozen=True, kw_only=True)
class Opponents(ABC):  # noqa: B024 (a name for what conf/opponents holds)
    """Who plays the sides of a game that the learner does not."""


@dataclass(frozen=True, kw_only=True)
class SelfPlay(Opponents):
    """The learner plays all sides of every game, and learns from all of them."""


@dataclass(frozen=True, kw_only=True)
class PastSelves(Opponents):
    """The learner plays one side of a game, and one opponent all others: a past self from a pool, or the present one.

    The learner's side changes with every episode. Opponents do not learn, and nothing is learned from their decisions.
    """

    latest: Fraction = 0.5
    """Share of the games against the policy of the last update; the others are against the pool."""
    choice: Choice = "uniform"
    """Opponent from the pool: uniform; newest; hard or even, by prioritised fictitious self-play."""
    explore: Fraction = 0.0
    """Share of the games with the pool that the snapshots with the fewest games get."""
    snapshot: Count = 1_000_000
    """Environment steps between snapshots of the learner."""
    promote: Fraction | None = None
    """A snapshot is kept only if the score against the pool since the last one is higher, by its Wilson bound."""
    capacity: Count = 32
    """Snapshots in the pool; the oldest leaves first."""
    window: Count = 100
    """Games against a snapshot that its score is the mean of."""
    deterministic: bool = False
    """Whether opponents take the most likely action."""
