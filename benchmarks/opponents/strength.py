"""How strong groups of players are, by the games of a payoff matrix (matrix.json of ``evorl.evaluate matrix=true``).

The share of a group in Nash averaging (Balduzzi et al. 2018) is the sum of its players' shares in the mixture that
nobody in the set beats, over log-odds. Its interval is that of `evorl.matches.judge.posterior_points`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorl.matches.judge import RESAMPLES, interval, log_odds, posterior_points, tables
from evorl.ops.payoffs import nash_averaging
from evorl.util import seed as seeds

Array = NDArray[np.float64]
Seats = Mapping[tuple[int, int], Sequence[NDArray[np.int64]]]
"""Wins, draws and defeats [3] of the first player of a pair, on either side."""


def seats_of(pairs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Seats:
    """The results of the pairs among these players."""
    place = {name: number for number, name in enumerate(names)}
    return {
        (place[pair["a"]], place[pair["b"]]): [
            np.array([seat["wins"], seat["draws"], seat["defeats"]]) for seat in pair["a_by_side"]
        ]
        for pair in pairs
        if pair["a"] in place and pair["b"] in place
    }


def shares(seats: Seats, players: int, groups: Sequence[Sequence[int]]) -> list[tuple[float, float, float]]:
    """The share of each group of players in Nash averaging, and the bounds of its 95 % interval."""
    pairs, played = [*seats], np.array([[*both] for both in seats.values()], np.float64)  # [P, 2, 3]
    games = np.zeros((players, players), np.int64)
    for (i, j), number in zip(pairs, played.sum((1, 2)), strict=True):
        games[i, j] = games[j, i] = number
    found = played.sum(1) @ [1, 0.5, 0]
    drawn = posterior_points(played, RESAMPLES, seeds.generator(0, "posterior of shares"))
    mixtures = [nash_averaging(log_odds(wins, games))[0] for wins in tables(pairs, np.stack([*drawn, found]), games)]
    sums = [[mixture[[*group]].sum() for group in groups] for mixture in mixtures]
    low, high = interval(np.array(sums[:-1]), np.array(sums[-1]))
    return [(float(x), float(a), float(b)) for x, a, b in zip(sums[-1], low, high, strict=True)]


def scores(seats: Seats, group: Sequence[int], others: Sequence[int]) -> list[float]:
    """The mean score of each player of a group against the others."""
    means = []
    for player in group:
        each = []
        for other in others:
            won, drawn, lost = np.sum(seats[min(player, other), max(player, other)], 0)
            score = (won + drawn / 2) / (won + drawn + lost)
            each.append(score if player < other else 1 - score)
        means.append(float(np.mean(each)))
    return means
