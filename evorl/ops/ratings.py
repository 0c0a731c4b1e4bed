"""Ratings of players by the games they played."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ELO = 400 / math.log(10)
"""Points of Elo's scale for one unit of log-odds."""


def expected(rating: Array, opponent: Array) -> Array:
    """Return the expected scores of players by Elo's formula: 1 / (1 + 10^((opponent - rating) / 400))."""
    return 1 / (1 + 10 ** ((opponent - rating) / 400))


def bradley_terry(score: Array, prior: float = 1.0) -> Array:
    """Return the ratings [S] on Elo's scale, of mean 0, under which the games are most likely, whatever their order.

    ``score[i, j]`` is how many games i won against j, a draw counting one half (Bradley and Terry 1952). ``prior`` is a
    number of draws that every player is given against an average one: without it who won all games has no rating.
    Newton's method on a concave likelihood. Raises ValueError for a prior of 0 if some players never met.
    """
    games = score + score.T
    n = len(score)
    if prior <= 0 and not _connected(games > 0):
        raise ValueError("some players never met, even over others: give a prior")
    rating = np.zeros(n)
    for _ in range(100):
        odds = rating[:, None] - rating[None]
        p = 1 / (1 + np.exp(-odds))
        alone = 1 / (1 + np.exp(-rating))
        slope = (score - games * p).sum(1) + prior * (0.5 - alone)
        weight = games * p * (1 - p)
        curve = np.diag(weight.sum(1) + prior * alone * (1 - alone)) - weight
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]
        step *= min(1.0, 2 / max(np.abs(step).max(), 1e-300))
        rating += step
        if np.abs(step).max() < 1e-12:
            break
    return np.asarray((rating - rating.mean()) * ELO)


def _connected(met: NDArray[np.bool_]) -> bool:
    reached = np.arange(len(met)) == 0
    while (further := reached | met[reached].any(0)).sum() > reached.sum():
        reached = further
    return bool(reached.all())


class Glicko(NamedTuple):
    """A player under Glicko-2: its rating, the deviation of that, and how much its strength changes."""

    rating: float = 1500.0
    deviation: float = 350.0
    volatility: float = 0.06


_SCALE = 173.7178


def glicko2(
    player: Glicko, opponents: Sequence[Glicko], scores: Sequence[float], tau: float = 0.5, tolerance: float = 1e-6
) -> Glicko:
    """Return a player after a period of games with these scores: 1 a win, 1/2 a draw, 0 a loss.

    Glickman 2013, Example of the Glicko-2 system; the steps below are its steps. ``tau`` bounds how fast the volatility
    changes. Without games only the deviation grows.
    """
    mu, phi, sigma = (player.rating - 1500) / _SCALE, player.deviation / _SCALE, player.volatility  # step 2
    if not opponents:
        return player._replace(deviation=_SCALE * math.hypot(phi, sigma))
    mu_j = np.array([(opponent.rating - 1500) / _SCALE for opponent in opponents])
    phi_j = np.array([opponent.deviation / _SCALE for opponent in opponents])
    g = 1 / np.sqrt(1 + 3 * phi_j**2 / math.pi**2)
    e = 1 / (1 + np.exp(-g * (mu - mu_j)))
    v = 1 / float((g**2 * e * (1 - e)).sum())  # step 3
    surprise = float((g * (np.asarray(scores, np.float64) - e)).sum())
    sigma = _volatility(v * surprise, phi, sigma, v, tau, tolerance)  # steps 4 and 5
    phi = 1 / math.sqrt(1 / (phi**2 + sigma**2) + 1 / v)  # steps 6 and 7
    return Glicko(1500 + _SCALE * (mu + phi**2 * surprise), _SCALE * phi, sigma)  # step 8


def glicko2_of_all(periods: Iterable[Sequence[tuple[int, int, float]]], players: int) -> list[Glicko]:
    """Return the players after these rating periods, all of them new before the first one.

    A period holds games: two players, and the points of the first. All games of a period count at once, under the
    ratings before it, so their order does not matter.
    """
    rated = [Glicko()] * players
    for games in periods:
        opponents: list[list[Glicko]] = [[] for _ in rated]
        scores: list[list[float]] = [[] for _ in rated]
        for a, b, points in games:
            opponents[a].append(rated[b])
            opponents[b].append(rated[a])
            scores[a].append(points)
            scores[b].append(1 - points)
        rated = [glicko2(*player) for player in zip(rated, opponents, scores, strict=True)]
    return rated


def _volatility(delta: float, phi: float, sigma: float, v: float, tau: float, tolerance: float) -> float:
    """Step 5: the root of f by the Illinois algorithm."""
    a = math.log(sigma**2)

    def f(x: float) -> float:
        e = math.exp(x)
        return e * (delta**2 - phi**2 - v - e) / (2 * (phi**2 + v + e) ** 2) - (x - a) / tau**2

    low = a
    if delta**2 > phi**2 + v:
        high = math.log(delta**2 - phi**2 - v)
    else:
        k = 1
        while f(a - k * tau) < 0:
            k += 1
        high = a - k * tau
    f_low, f_high = f(low), f(high)
    while abs(high - low) > tolerance:
        middle = low + (low - high) * f_low / (f_high - f_low)
        f_middle = f(middle)
        if f_middle * f_high <= 0:
            low, f_low = high, f_high
        else:
            f_low /= 2
        high, f_high = middle, f_middle
    return math.exp(low / 2)
