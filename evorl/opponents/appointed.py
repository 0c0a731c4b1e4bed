"""Opponents that were chosen elsewhere, by an evolver whose individuals play each other (`evorl.ec.opposing`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evorl.opponents.core import PastSelves
from evorl.opponents.pool import Game, Opponent, Pool, Table


class Appointment(NamedTuple):
    """An opponent, and how likely it plays a game."""

    number: int
    chances: Sequence[float]  # for each side of the learner, or one for all of them
    weights: list[Tensor]  # as `Learner.weights`


class Appointed(Pool):
    """A pool whose opponents and probabilities stay as they are. It keeps the games, in order."""

    def __init__(self, config: PastSelves, others: Sequence[Appointment], itself: Sequence[float] = (0.0,)) -> None:
        """``itself``: the chances of the learner itself, as those of the others."""
        super().__init__(config)
        self.snapshots = [Opponent(other.number, f"player {other.number}", 0, other.weights) for other in others]
        chances = np.array([itself, *(other.chances for other in others)]).T
        total = chances.sum(1, keepdims=True)
        self._chances = chances / np.where(total > 0, total, 1)  # [1 or P, 1 + N]; of sides that it does not play, 0
        self.games: list[Game] = []

    def table(self) -> Table:
        return super().table()._replace(chances=self._chances)

    def chances(self) -> NDArray[np.float64]:
        return np.asarray(self._chances.mean(0)[1:])  # over the sides of the learner

    def record(self, games: Iterable[Game], seated: Iterable[int]) -> list[Opponent]:
        games = [*games]
        self.games += games
        return super().record(games, seated)

    def add_if_due(self, weights: Sequence[Tensor], step: int, update: int) -> None:
        """Add nobody."""
