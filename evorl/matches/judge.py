"""What the games of all pairs say of the players.

Letters in shapes: K players, D draws. Points count 1 for a win, 1/2 for a draw, 0 for a defeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from evorl.matches.records import key
from evorl.matches.returns import returns
from evorl.ops.payoffs import alpha_rank, cyclic_share, nash_averaging, nash_conv, two_sided
from evorl.ops.proportions import wilson
from evorl.ops.ratings import bradley_terry, expected, glicko2_of_all
from evorl.ops.student_t import half_width
from evorl.util import seed as seeds

if TYPE_CHECKING:
    from evorl.matches.players import Player

Array = NDArray[np.float64]
By = Literal["points", "return"]
RESAMPLES = 200
PRIOR = 0.5
"""Games of each result that a pair is given on either side beside its own, in `posterior_points`."""
ROUNDING = 1e-9
"""Of shares: games without chance leave nothing but this."""
FEWEST_KEYS = 10
"""Below this number of keys nothing is said of the sides."""
PERIOD = 10
"""Least games of a player in a rating period of Glicko-2 (Glickman 2013: 10 to 15 on average)."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Intervals are of 95 %."""

    by: By
    """What payoffs are of, and what follows from them: Nash averaging, alpha-rank, exploitability and cycles."""
    games: NDArray[np.int64]
    """[K, K] of each pair; 0 on the diagonal."""
    score: Array
    """[K, K]: the share of points of the player of a row against that of a column; 1/2 on the diagonal."""
    score_bounds: Array
    """[2, K, K], by Wilson."""
    by_side: Array
    """[2, K, K]: the same of the games in which the player of the row had side 0, and side 1."""
    rating: Array
    """[K]: Bradley-Terry on Elo's scale; the mean is 0."""
    rating_bounds: Array
    """[2, K], of `posterior_points`."""
    glicko: Array
    """[K]: Glicko-2, whose new players have 1500."""
    glicko_bounds: Array
    """[2, K]: 1.96 rating deviations below and above."""
    nash: Array
    """[K]: the mixture of Nash averaging over log-odds, by returns over payoffs."""
    nash_bounds: Array
    """[2, K], likewise."""
    alpha: Array
    """[K]: alpha-rank over payoffs, in the limit of strong selection."""
    payoff: Array
    """[K, K]: what a row's player gains on a column's in a game: points above one half, or by returns half of what it
    earned more, against the rule player what it earned. Antisymmetric."""
    payoff_bounds: Array
    """[2, K, K], by Wilson, or by Student's t."""
    worst: NDArray[np.int64]
    """[K]: the opponent against whom a player gains least."""
    exploitability: Array
    """[K]: what the best answer within the set gains on a player; at least 0."""
    uniform_exploitability: float
    """The same of the mixture that plays everybody equally often."""
    cyclic: float
    """Share of the squares of the log-odds, by returns of the payoffs, that no rating explains."""
    cyclic_by_chance: tuple[float, float, float]
    """Mean and bounds of that share if the ratings explained everything, with so many games."""
    first_side: tuple[float, float, float]
    """Share of points of side 0 over all games, and its bounds."""
    keys: int
    """Episode keys of these games: every pair plays a key twice, with changed sides."""


def judge(
    players: Sequence[Player],
    points: Mapping[tuple[str, str], Sequence[float]],
    seed: int,
    margins: Mapping[tuple[str, str], Sequence[float]] | None = None,
) -> Judgement:
    """Judge the players by the points of each pair's games (`evorl.matches.records.Record.points`).

    ``margins``: judge all but scores and ratings by returns (`evorl.matches.records.Record.margins`).
    """
    sides = _by_side(players, points)
    wins, games = _totals(sides, len(players))
    score = _share(wins, games)
    bounds = np.full((2, *score.shape), 0.5)
    for i, j in zip(*np.nonzero(games), strict=True):
        bounds[:, i, j] = wilson(wins[i, j], games[i, j])
    rating = bradley_terry(wins)
    glicko = np.array(glicko2_of_all(_periods(sides, len(players)), len(players)))
    pairs, played = [*sides], np.array([[results(points) for points in pair] for pair in sides.values()])
    drawn = tables(pairs, posterior_points(played, RESAMPLES, seeds.generator(seed, "posterior")), games)
    ratings = np.array([bradley_terry(table) for table in drawn])
    if margins is None:
        payoff, payoff_bounds, advantage = score - 0.5, bounds - 0.5, log_odds(wins, games)
        as_well = np.array([log_odds(table, games) for table in drawn])
        by_chance = _log_odds_by_chance(rating, pairs, played.sum(1), games, seed)
    else:
        payoff, payoff_bounds, as_well, by_chance = returns(_by_key(players, margins), len(players), RESAMPLES, seed)
        scale = float(np.abs(payoff).max()) or 1.0  # Nash averaging has absolute tolerances
        advantage, as_well = payoff / scale, as_well / scale
    nash, _ = nash_averaging(advantage)
    mixtures = np.array([nash_averaging(table)[0] for table in as_well])
    others = np.where(games > 0, payoff, np.inf)
    uniform = np.full(len(players), 1 / len(players))
    return Judgement(
        by="points" if margins is None else "return",
        games=games, score=score, score_bounds=bounds, by_side=_shares_by_side(sides, len(players)), rating=rating,
        rating_bounds=around(ratings, rating), glicko=glicko[:, 0],
        glicko_bounds=glicko[:, 0] + np.multiply.outer([-1.96, 1.96], glicko[:, 1]), nash=nash,
        nash_bounds=interval(mixtures, nash), alpha=alpha_rank(2 * payoff, np.inf), payoff=payoff,
        payoff_bounds=payoff_bounds, worst=others.argmin(1), exploitability=np.maximum(0.0, 0.0 - others.min(1)),
        uniform_exploitability=nash_conv(two_sided(payoff), [uniform, uniform]) / 2,
        cyclic=cyclic_share(advantage), cyclic_by_chance=_spread([cyclic_share(table) for table in by_chance]),
        first_side=_first_side(sides), keys=_keys(sides),
    )  # fmt: skip


_Sides = dict[tuple[int, int], tuple[Array, Array]]
"""Points of player i in its games against j, i < j, as side 0 and as side 1."""


def _by_side(players: Sequence[Player], points: Mapping[tuple[str, str], Sequence[float]]) -> _Sides:
    played = {}
    for i, j in combinations(range(len(players)), 2):
        names, swapped = key(players[i], players[j])
        each = np.array(points[names])
        each = each[: len(each) // 2 * 2]
        played[i, j] = (1 - each[1::2], 1 - each[::2]) if swapped else (each[::2], each[1::2])
    return played


def _by_key(
    players: Sequence[Player], margins: Mapping[tuple[str, str], Sequence[float]]
) -> dict[tuple[int, int], Array]:
    """The margins of player i in its games against j, i < j, means over the two games of each key."""
    each = {}
    for i, j in combinations(range(len(players)), 2):
        names, swapped = key(players[i], players[j])
        own = np.array(margins[names])
        each[i, j] = own[: len(own) // 2 * 2].reshape(-1, 2).mean(1) * (-1 if swapped else 1)
    return each


def _periods(sides: _Sides, count: int) -> Iterator[list[tuple[int, int, float]]]:
    """Rating periods: so many games of each pair and seat that a player has `PERIOD` games or more."""
    size = ceil(PERIOD / (2 * (count - 1)))
    for at in range(0, max(len(own) for own, _ in sides.values()), size):
        yield [
            (i, j, float(points)) for (i, j), pair in sides.items() for seat in pair for points in seat[at : at + size]
        ]


def _keys(sides: _Sides) -> int:
    return max(len(played) for pair in sides.values() for played in pair)


def _first_side(sides: _Sides) -> tuple[float, float, float]:
    """The share of points of side 0 over all games, and its bounds: by Student's t over keys, which all pairs share."""
    points, games = np.zeros((2, _keys(sides)))
    for own, other in sides.values():  # games 2k and 2k + 1 have the same key
        for each in (own, 1 - other):
            points[: len(each)] += each
            games[: len(each)] += 1
    share = float(points.sum() / games.sum())
    if len(points) < 2:
        return share, 0.0, 1.0
    width = half_width((points / games).tolist())
    return share, max(0.0, share - width), min(1.0, share + width)


def _totals(sides: _Sides, count: int) -> tuple[Array, NDArray[np.int64]]:
    """Points [K, K] of a row's player against a column's, and games [K, K]."""
    wins, games = np.zeros((count, count)), np.zeros((count, count), np.int64)
    for (i, j), pair in sides.items():
        games[i, j] = games[j, i] = sum(map(len, pair))
        wins[i, j] = sum(float(points.sum()) for points in pair)
        wins[j, i] = games[i, j] - wins[i, j]
    return wins, games


def _share(wins: Array, games: NDArray[np.int64]) -> Array:
    return np.where(games > 0, wins / np.maximum(games, 1), 0.5)


def _shares_by_side(sides: _Sides, count: int) -> Array:
    scores = np.full((2, count, count), 0.5)
    for (i, j), pair in sides.items():
        for side in (0, 1):
            scores[side, i, j] = pair[side].mean()
            scores[1 - side, j, i] = 1 - scores[side, i, j]
    return scores


def log_odds(wins: Array, games: NDArray[np.int64]) -> Array:
    """Antisymmetric log-odds [K, K] of winning, each pair with one more draw, so that none is infinite."""
    odds = np.log(wins + 0.5) - np.log(games - wins + 0.5)
    return np.asarray((odds - odds.T) / 2)


def results(points: Array) -> Array:
    """The numbers [3] of wins, draws and defeats; a game of 3/4 points is half a win and half a draw."""
    wins, defeats = np.maximum(0, 2 * points - 1).sum(), np.maximum(0, 1 - 2 * points).sum()
    return np.array([wins, len(points) - wins - defeats, defeats])


def posterior_points(played: Array, number: int, draw: np.random.Generator) -> Array:
    """Return points [number, P] that the first players of P pairs could as well have won.

    ``played`` [P, 2, 3]: their wins, draws and defeats on either side. The shares of the three results are drawn from
    their posterior under Jeffreys' prior. A bootstrap of the games would be sure of a player who won them all.
    """
    weights = draw.standard_gamma(played + PRIOR, (number, *played.shape))
    shares = weights / weights.sum(-1, keepdims=True)  # Dirichlet
    return np.asarray((shares @ [1, 0.5, 0] * played.sum(-1)).sum(-1))


def tables(pairs: Sequence[tuple[int, int]], points: Array, games: NDArray[np.int64]) -> Array:
    """Return the points [D, K, K] of a row's player against a column's, from those [D, P] of the first of each pair."""
    i, j = np.array(pairs).T
    wins = np.zeros((len(points), *games.shape))
    wins[:, i, j], wins[:, j, i] = points, games[i, j] - points
    return wins


def interval(drawn: Array, found: Array) -> Array:
    """The interval [2, K] of 95 % of what was drawn [D, K], widened to what was found: that may be at its edge."""
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return np.array([np.minimum(low, found), np.maximum(high, found)])


def around(drawn: Array, found: Array) -> Array:
    """The interval [2, K] that reaches as far on either side of what was found as the farther end of `interval`.

    The prior pulls all that is drawn to the middle, but who won every game may be as much stronger as weaker.
    """
    far = np.abs(interval(drawn, found) - found).max(0)
    return np.array([found - far, found + far])


def _log_odds_by_chance(
    rating: Array, pairs: Sequence[tuple[int, int]], played: Array, games: NDArray[np.int64], seed: int
) -> Array:
    """The log-odds [D, K, K] of games whose results follow from the ratings and the pairs' draws alone.

    ``played`` [P, 3]: wins, draws and defeats of the first player of each pair.
    """
    i, j = np.array(pairs).T
    score = expected(rating[i], rating[j])
    drawn = np.minimum(played[:, 1] / games[i, j], 2 * np.minimum(score, 1 - score))
    chances = np.stack([score - drawn / 2, drawn, 1 - score - drawn / 2], 1).clip(0, 1)
    found = seeds.generator(seed, "no cycles").multinomial(games[i, j], chances, (RESAMPLES, len(pairs)))
    return np.array([log_odds(wins, games) for wins in tables(pairs, found @ [1, 0.5, 0], games)])


def _spread(shares: Sequence[float]) -> tuple[float, float, float]:
    """Mean and the bounds of 95 %."""
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(np.mean(shares)), float(low), float(high)


def sentences(judged: Judgement, names: Sequence[str], sides: Sequence[str]) -> list[str]:
    """What the numbers say, in words."""
    mean, low, high = judged.cyclic_by_chance
    what = "log-odds" if judged.by == "points" else "payoffs"
    rest = f"{judged.cyclic:.0%} of the variance of the {what} is not explained by one rating for each player"
    if judged.cyclic > high + ROUNDING:
        cycles = f"Who beats whom is not only a matter of strength: {rest}, and chance alone gives at most {high:.0%}"
        cycles += f"; about {judged.cyclic - mean:.0%} are cycles, as of rock, paper, scissors."
    else:
        cycles = f"One rating says who beats whom: {rest}, and chance alone gives {low:.0%} to {high:.0%}."
    share, least, most = judged.first_side
    if judged.keys < FEWEST_KEYS:
        seat = f"{judged.keys * 2} games a pair are too few to say whether the sides are equal."
    else:
        seat = f"Over all games {sides[0]} scores {share:.1%} ({least:.1%} to {most:.1%}): "
        seat += "no side shows an advantage." if least <= 0.5 <= most else "the sides are not equal."
    best = [names[i] for i in np.argsort(-judged.nash) if judged.nash[i] > 1e-6]
    return [
        f"Nash averaging: {', '.join(best)} {'are' if len(best) > 1 else 'is'} what nobody in the set beats.",
        cycles,
        seat,
        f"Exploitability within the set, in {'points' if judged.by == 'points' else 'returns'}: "
        f"{judged.exploitability.min():.3f} of the least exploitable player, "
        f"{judged.uniform_exploitability:.3f} of all players equally often.",
    ]
