"""The config of training against opponents: who is in the pool, and which of them plays a game."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from typing import Literal

from evorl.util.errors import BadRequest
from evorl.util.types import Count, Fraction, Natural, NonNegative

Choice = Literal["uniform", "newest", "weights", "cycle", "hard", "even"]


@dataclass(frozen=True, kw_only=True)
class Opponents(ABC):  # noqa: B024 (a name for what conf/opponents holds)
    """Who plays the sides of a game that the learner does not."""


@dataclass(frozen=True, kw_only=True)
class SelfPlay(Opponents):
    """The learner plays all sides of every game, and learns from all of them."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of the kinds of opponents with ``choice=weights``; those of a kind share its weight evenly."""

    rule: NonNegative = 1.0
    """The rule player."""
    runs: NonNegative = 1.0
    """Policies of other runs."""
    past: NonNegative = 1.0
    """Snapshots."""


@dataclass(frozen=True, kw_only=True)
class Pooled(Opponents, ABC):
    """The learner plays one side of a game, and one opponent from a pool all others.

    The learner's side changes with every episode. Opponents do not learn, and nothing is learned from their decisions.
    """

    choice: Choice = "uniform"
    """Opponent from the pool; hard and even are prioritised fictitious self-play."""
    explore: Fraction = 0.0
    """Share of the games with the pool that the opponents with the fewest games get; not in a cycle."""
    rule: bool = False
    """Whether the world's rule player is in the pool."""
    runs: tuple[str, ...] = ()
    """Policies of other runs in the pool: RUN_DIR is its latest checkpoint; also RUN_DIR@best and RUN_DIR@STEP."""
    sides: tuple[Natural, ...] | None = None
    """Sides that the learner plays, by turns; the first is 0. null: every side."""
    window: Count = 100
    """Games against an opponent that its score is the mean of."""
    deterministic: bool = False
    """Whether opponents take the most likely action."""
    weights: Weights = field(default_factory=Weights)
    """Weight of each kind of opponent with choice=weights; those of a kind share it evenly."""

    def __post_init__(self) -> None:
        if self.sides is not None and len({*self.sides}) != max(1, len(self.sides)):
            raise BadRequest(f"expected one side or more, each once, got {list(self.sides)}", "sides")
        if self.choice == "newest" and (self.rule or self.runs):
            raise BadRequest("newest never chooses a rule player or another run; take another choice", "choice")
        if self.choice == "weights" and not self._weight:
            raise BadRequest("no opponent in the pool has a weight above 0", "weights")
        if self.choice != "weights" and self.weights != Weights():
            raise BadRequest(f"{self.choice} has no weights; take opponents.choice=weights", "weights")
        if self.choice == "cycle" and self.explore:
            raise BadRequest("a cycle gives every opponent as many games; leave it out", "explore")

    @property
    def _weight(self) -> float:
        """The weights of all kinds that are always in the pool."""
        return self.weights.rule * self.rule + self.weights.runs * bool(self.runs)


@dataclass(frozen=True, kw_only=True)
class Fixed(Pooled):
    """Opponents that stay the same: the rule player, or policies of other runs."""

    rule: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.choice == "newest":
            raise BadRequest("there are no snapshots; opponents=past has some", "choice")
        if not (self.rule or self.runs):
            raise BadRequest("the pool is empty; name other runs: opponents.runs=[RUN_DIR,RUN_DIR@best]", "runs")


@dataclass(frozen=True, kw_only=True)
class PastSelves(Pooled):
    """Past selves of the learner, which its pool takes as snapshots, and its present policy."""

    latest: Fraction = 0.5
    """Share of the games against the policy of the last update; the others are against the pool."""
    snapshot: Count = 1_000_000
    """Environment steps between snapshots of the learner."""
    updates: Count | None = None
    """Updates of the learner between snapshots, in place of environment steps; an update learns from a whole batch."""
    promote: Fraction | None = None
    """A snapshot is kept only if the score against the pool since the last one is higher, by its Wilson bound."""
    capacity: Count = 32
    """Snapshots in the pool; the oldest leaves first."""

    @property
    def _weight(self) -> float:
        return super()._weight + self.weights.past
