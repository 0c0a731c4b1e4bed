"""Which games are still to be played, and by whom they are played: here, or in the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations

from evorl.cluster.core import Cluster
from evorl.matches.players import Player
from evorl.matches.records import Record, key
from evorl.opponents.play import PAIRS, ROWS, Matches, Outcome, Pair, alike
from evorl.ops.proportions import wilson
from evorl.util.errors import BadRequest

AT_ONCE = 40
"""Games after which the width of an interval is looked at."""


def games_wanted(games: int, width: float | None) -> Callable[[Sequence[float]], int]:
    """Return how many games a pair needs by the points of those that it has played."""

    def wanted(points: Sequence[float]) -> int:
        if width is None:
            return games
        looked, total = len(points) // AT_ONCE * AT_ONCE, 0.0
        for n in range(AT_ONCE, looked + 1, AT_ONCE):
            total += sum(points[n - AT_ONCE : n])
            low, high = wilson(total, n)
            if high - low < width:
                return n
        return looked + AT_ONCE

    return wanted


def play_missing(
    matches: Matches[Player], record: Record, wanted: Callable[[Sequence[float]], int], cluster: Cluster,
    show: Callable[[int, int], None] = lambda done, total: None,
) -> None:  # fmt: skip
    """Play what the pairs of all players lack, and keep it. ``show`` gets the pairs that are done, and all of them."""
    total = len(pairs_of(matches.players))
    while missing := _missing(matches.players, record, wanted):
        done = total - len(missing)
        for outcome in _outcomes(matches, missing, cluster):
            pair = matches.players[outcome.pair.a], matches.players[outcome.pair.b]
            record.add(outcome, key(*pair)[0])
            done += 1
            show(done, total)


def pairs_of(players: Sequence[Player]) -> dict[tuple[str, str], tuple[int, int]]:
    """The places of the players of each pair by their fingerprints, in the order in which they play."""
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for i, j in combinations(range(len(players)), 2):
        names, swapped = key(players[i], players[j])
        counts.setdefault(names, (j, i) if swapped else (i, j))
    return counts


def _missing(players: Sequence[Player], record: Record, wanted: Callable[[Sequence[float]], int]) -> list[Pair]:
    """The games that are to be played next. Those of a pair begin with a whole number of rows."""
    missing = []
    for names, (a, b) in pairs_of(players).items():
        points = record.points.get(names, [])
        if len(points) < (end := wanted(points)):
            missing.append(Pair(a, b, len(points) // ROWS * ROWS, end))
    return missing


def _outcomes(matches: Matches[Player], missing: Sequence[Pair], cluster: Cluster) -> Iterator[Outcome]:
    """Play the pairs and yield their outcomes as they come: in tasks of many pairs, whose results are the same."""
    if cluster.in_process:
        for task in alike(missing, matches.players, len(missing)):
            yield from matches.outcomes(task)
        return
    size = max(1, min(2 * PAIRS, -(-len(missing) // (2 * cluster.workers))))
    tasks = alike(missing, matches.players, size)
    group = cluster.spawn(partial(_member, matches), min(cluster.workers, len(tasks)), (BadRequest,))
    try:
        for answers in group.map("play", [([tuple(pair) for pair in task],) for task in tasks]):
            for pair, *games in answers:
                yield Outcome(Pair(*pair), *games)
    finally:
        group.close()


def _member(matches: Matches[Player], index: int) -> Matches[Player]:
    return matches
