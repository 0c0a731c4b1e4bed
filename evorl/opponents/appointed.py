"""Opponents that were chosen elsewhere: those of an agent of a league (`evorl.ec.league`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evorl.opponents.core import PastSelves
from evorl.opponents.pool import Game, Opponent, Pool


class Appointment(NamedTuple):
    """An opponent, and how likely it plays a game."""

    number: int
    chance: float
    weights: list[Tensor]  # as `Learner.weights`


class Appointed(Pool):
    """A pool whose opponents and probabilities stay as they are. It keeps the games, in order."""

    def __init__(self, config: PastSelves, others: Sequence[Appointment]) -> None:
        """``config.latest`` is the share of games against the learner itself."""
        super().__init__(config)
        self.snapshots = [Opponent(other.number, f"player {other.number}", 0, other.weights) for other in others]
        chances = np.array([other.chance for other in others])
        self._chances = chances / chances.sum() if len(chances) else chances
        self.games: list[Game] = []

    def chances(self) -> NDArray[np.float64]:
        return self._chances

    def record(self, games: Iterable[Game], seated: Iterable[int]) -> list[Opponent]:
        games = [*games]
        self.games += games
        return super().record(games, seated)

    def add_if_due(self, weights: Sequence[Tensor], step: int) -> None:
        """Add nobody."""
