"""Players at G games of Pong: where they sit, what they see, who plays against them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.pong_rules import SIZE, TOP, Games, Rules, advance, random_moves, rule_moves

Opponent = Literal["rule", "random", "self"]
VIEW = 10  # numbers that a player sees


class Seats:
    """B players: player b has side ``side[b]`` of the game ``game[b]`` and sees ``view[b]``."""

    def __init__(self, game: Array, side: Array, games: int) -> None:
        count = len(game)
        self.game, self.games = game, games
        self.side = np.zeros(count, np.int64)
        self.own, self.other = np.zeros((2, count), np.int64)  # flat indices into arrays [2, G]
        self.edge = np.zeros(count)  # the x from which this player measures
        self.view = np.zeros((count, VIEW), np.float32)
        self.sit(np.arange(count), side)

    def sit(self, which: Array, side: Array) -> None:
        """The players ``which`` begin an episode on these sides (both [n])."""
        self.side[which] = side
        self.own[which] = side * self.games + self.game[which]
        self.other[which] = (1 - side) * self.games + self.game[which]
        self.edge[which] = side * SIZE
        self.view[which] = 0.5

    def look(self, games: Games) -> None:
        """Bring ``view`` (float32 [B, 10]) up to date; once for each step."""
        view = self.view
        pairs = view.view(np.complex64)  # [B, 5]: each (x, y) moves as one item
        for column in (1, 2, 3):
            pairs[:, column] = pairs[:, column + 1]
        heights = (games.y - TOP) / SIZE
        view[:, 0] = heights.take(self.own)
        view[:, 1] = heights.take(self.other)
        view[:, 8] = np.abs(games.x.take(self.game) - self.edge) / SIZE
        view[:, 9] = heights[2].take(self.game)


class Match:
    """Games, the players at them, and an opponent who decides for every side that no player holds."""

    def __init__(self, rules: Rules, opponent: Opponent, keys: Array, game: Array, side: Array) -> None:
        self.rules, self.opponent = rules, opponent
        self.games = Games(rules, keys)
        self.seats = Seats(game, side, len(keys))
        self.seats.look(self.games)
        self._moves = np.zeros((2, len(keys)))
        self._speeds = np.array([-1.0, 0.0, 1.0]) * rules.bat_speed

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """One step of every game under the players' actions [B]; returns what `pong_rules.advance` does."""
        if self.opponent == "rule":
            rule_moves(self.rules, self.games, self._moves)
        elif self.opponent == "random":
            random_moves(self.rules, self.games, self._moves)
        self._moves.reshape(-1)[self.seats.own] = self._speeds[actions]
        return advance(self.rules, self.games, self._moves)

    def results(self, players: Array) -> list[dict[str, float]]:
        """The results of the players' games as they stand."""
        score = self.games.score.reshape(-1)
        leads = score[self.seats.own[players]] - score[self.seats.other[players]]
        return [result(lead, self.rules.rounds) for lead in leads.tolist()]


def result(lead: int, rounds: int) -> dict[str, float]:
    """An episode's named results for a side that won ``lead`` more rounds than the other."""
    return {
        "score": float(lead),
        "win": 0.5 + 0.5 * ((lead > 0) - (lead < 0)),
        "fitness": (lead + rounds) / (2 * rounds),
    }
