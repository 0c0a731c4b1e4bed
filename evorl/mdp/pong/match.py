"""Players at G games of Pong: where they sit, what they see, how they behave, who plays against them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.pong.rules import SIZE, STAY, TOP, Behaviour, Games, Rules, advance, random_moves, rule_moves

Opponent = Literal["rule", "random", "self"]
VIEW = 10  # numbers that a player sees
_TOP, _SIZE, _STAY = np.array(float(TOP)), np.array(float(SIZE)), np.array(STAY)  # NumPy takes these twice as fast


class Players:
    """B players: player b has side ``side[b]`` of the game ``game[b]``, sees ``view[b]``, did what ``counts`` say."""

    def __init__(self, game: Array, side: Array, games: Games) -> None:
        count = len(game)
        self.game = game
        self.side = np.zeros(count, np.int64)
        self._index = np.zeros((3, count), np.int64)  # the own bat's, the other's and the ball's in y [3, G], flat
        self.own, self.other = self._index[:2]  # also of arrays [2, G]
        self._index[2] = 2 * len(games.x) + game
        self._y = np.zeros((3, count))  # of them
        self.edge = np.zeros(count)  # the x from which this player measures
        self.view = np.zeros((count, VIEW), np.float32)
        self._pairs = self.view.view(np.complex64)  # [B, 5]: each (x, y) moves as one item
        self.counts = np.zeros((2, count), np.int64)  # steps of the episode: those without action, those with movement
        self._now = np.zeros((2, count), np.bool_)  # whether the last step was one
        self._stayed, self._moved = self._now
        self.begin_episode(np.arange(count), side, games)

    def begin_episode(self, which: Array, side: Array, games: Games) -> None:
        """The players ``which`` begin an episode, as it stands in ``games``, on these sides (both [n])."""
        self.side[which] = side
        self.own[which] = side * len(games.x) + self.game[which]
        self.other[which] = (1 - side) * len(games.x) + self.game[which]
        self.edge[which] = side * SIZE
        self.view[which] = 0.5
        self.counts[:, which] = 0
        self._y[:, which] = games.y.take(self._index[:, which])

    def record_step(self, games: Games, actions: Array) -> None:
        """Note where everything is after a step, and what the players did in it."""
        y = games.y.take(self._index)
        np.not_equal(y[0], self._y[0], out=self._moved)
        np.equal(actions, _STAY, out=self._stayed)
        self.counts += self._now
        self._y = y

    def behaviour(self, weights: Behaviour) -> Array:
        """The rewards [B] of the last step for its manner alone."""
        return weights.busy * self._moved - weights.lazy * ~self._stayed

    def update_view(self, games: Games) -> None:
        """Bring ``view`` (float32 [B, 10]) up to date; once for each step."""
        view, pairs = self.view, self._pairs
        for column in (1, 2, 3):
            pairs[:, column] = pairs[:, column + 1]
        heights = (self._y - _TOP) / _SIZE
        view[:, 0] = heights[0]
        view[:, 1] = heights[1]
        view[:, 8] = np.abs(games.x.take(self.game) - self.edge) / _SIZE
        view[:, 9] = heights[2]


class Match:
    """Games, the players at them, and an opponent who decides for every side that no player holds."""

    def __init__(self, rules: Rules, opponent: Opponent, keys: Array, game: Array, side: Array) -> None:
        self.rules, self.opponent = rules, opponent
        self.games = Games(rules, keys)
        self.players = Players(game, side, self.games)
        self.players.update_view(self.games)
        self._moves = np.zeros((2, len(keys)))
        self._flat_moves = self._moves.reshape(-1)
        self._speeds = np.array([-1.0, 0.0, 1.0]) * rules.bat_speed

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """One step of every game under the players' actions [B]; returns what `pong_rules.advance` does."""
        if self.opponent == "rule":
            rule_moves(self.rules, self.games, self._moves)
        elif self.opponent == "random":
            random_moves(self.rules, self.games, self._moves)
        self._flat_moves[self.players.own] = self._speeds[actions]
        outcome = advance(self.rules, self.games, self._moves)
        self.players.record_step(self.games, actions)
        return outcome

    def results(self, players: Array) -> list[dict[str, float]]:
        """The results of the players' games as they stand."""
        score = self.games.score.reshape(-1)
        leads = score[self.players.own[players]] - score[self.players.other[players]]
        lazy, busy = self.players.counts[:, players] / self.games.time[self.players.game[players]]
        found = zip(leads.tolist(), lazy.tolist(), busy.tolist(), strict=True)
        return [result(lead, self.rules.rounds) | {"lazy": still, "busy": moved} for lead, still, moved in found]


def result(lead: int, rounds: int) -> dict[str, float]:
    """The results of the points, for a side that won ``lead`` more rounds than the other."""
    return {
        "score": float(lead),
        "win": 0.5 + 0.5 * ((lead > 0) - (lead < 0)),
        "fitness": (lead + rounds) / (2 * rounds),
    }
