"""Players and opponents in G games of Pong: observations, behaviour counts and results."""

from __future__ import annotations

from typing import Literal

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.pong.rules import SIZE, STAY, TOP, Behaviour, Games, Rules, advance, random_moves, rule_moves

Opponent = Literal["rule", "random", "self"]
VIEW = 10  # length of an observation
_TOP, _SIZE, _STAY = np.array(float(TOP)), np.array(float(SIZE)), np.array(STAY)  # NumPy takes these twice as fast


class Players:
    """B players: player b plays ``side[b]`` of game ``game[b]`` and observes ``view[b]``."""

    def __init__(self, game: Array, side: Array, games: Games) -> None:
        count = len(game)
        self.game = game
        self.side = np.zeros(count, np.int64)
        self._index = np.zeros((3, count), np.int64)  # flat indices into y [3, G]: own bat, other bat, ball
        self.own, self.other = self._index[:2]  # also valid for arrays [2, G]
        self._index[2] = 2 * len(games.x) + game
        self._y = np.zeros((3, count))  # y at these indices
        self.edge = np.zeros(count)  # x of the player's own edge
        self.view = np.zeros((count, VIEW), np.float32)
        self._pairs = self.view.view(np.complex64)  # [B, 5]: copies each (x, y) as one item
        self.counts = np.zeros((2, count), np.int64)  # steps of the episode: with action stay, with a moving bat
        self._last = np.zeros((2, count), np.bool_)  # the same for the last step
        self._stayed, self._moved = self._last
        self.begin_episode(np.arange(count), side, games)

    def begin_episode(self, which: Array, side: Array, games: Games) -> None:
        """Start an episode for the players ``which`` on the sides ``side`` (both [n])."""
        self.side[which] = side
        self.own[which] = side * len(games.x) + self.game[which]
        self.other[which] = (1 - side) * len(games.x) + self.game[which]
        self.edge[which] = side * SIZE
        self.view[which] = 0.5
        self.counts[:, which] = 0
        self._y[:, which] = games.y.take(self._index[:, which])

    def record_step(self, games: Games, actions: Array) -> None:
        """Update positions and behaviour counts after a step."""
        y = games.y.take(self._index)
        np.not_equal(y[0], self._y[0], out=self._moved)
        np.equal(actions, _STAY, out=self._stayed)
        self.counts += self._last
        self._y = y

    def behaviour(self, weights: Behaviour) -> Array:
        """Return the behaviour rewards [B] of the last step."""
        return weights.busy * self._moved - weights.lazy * ~self._stayed

    def update_view(self, games: Games) -> None:
        """Update ``view`` (float32 [B, 10]); call once per step."""
        view, pairs = self.view, self._pairs
        for column in (1, 2, 3):
            pairs[:, column] = pairs[:, column + 1]
        heights = (self._y - _TOP) / _SIZE
        view[:, 0] = heights[0]
        view[:, 1] = heights[1]
        view[:, 8] = np.abs(games.x.take(self.game) - self.edge) / _SIZE
        view[:, 9] = heights[2]


class Match:
    """Games, their players, and an opponent for every side without a player."""

    def __init__(self, rules: Rules, opponent: Opponent, keys: Array, game: Array, side: Array) -> None:
        self.rules, self.opponent = rules, opponent
        self.games = Games(rules, keys)
        self.players = Players(game, side, self.games)
        self.players.update_view(self.games)
        self._moves = np.zeros((2, len(keys)))
        self._flat_moves = self._moves.reshape(-1)
        self._speeds = np.array([-1.0, 0.0, 1.0]) * rules.bat_speed

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """One step of every game under the players' actions [B]; returns `rules.advance`'s result."""
        if self.opponent == "rule":
            rule_moves(self.rules, self.games, self._moves)
        elif self.opponent == "random":
            random_moves(self.rules, self.games, self._moves)
        self._flat_moves[self.players.own] = self._speeds[actions]
        if self.opponent == "self" and (left := actions < 0).any():
            self._leave_to_rule(self.players.own[left])
        outcome = advance(self.rules, self.games, self._moves)
        self.players.record_step(self.games, actions)
        return outcome

    def _leave_to_rule(self, sides: Array) -> None:
        """Let the rule player move these sides, as indices of [2, G]."""
        moves = np.zeros_like(self._moves)
        rule_moves(self.rules, self.games, moves)
        self._flat_moves[sides] = moves.reshape(-1)[sides]

    def results(self, players: Array) -> list[dict[str, float]]:
        """Return the players' results so far."""
        score = self.games.score.reshape(-1)
        leads = score[self.players.own[players]] - score[self.players.other[players]]
        lazy, busy = self.players.counts[:, players] / self.games.time[self.players.game[players]].clip(1)
        decided = zip(leads.tolist(), lazy.tolist(), busy.tolist(), strict=True)
        return [result(lead, self.rules.rounds) | {"lazy": still, "busy": moved} for lead, still, moved in decided]


def result(lead: int, rounds: int) -> dict[str, float]:
    """Return score, win and fitness of a side that won ``lead`` more rounds than the other."""
    return {
        "score": float(lead),
        "win": 0.5 + 0.5 * ((lead > 0) - (lead < 0)),
        "fitness": (lead + rounds) / (2 * rounds),
    }
