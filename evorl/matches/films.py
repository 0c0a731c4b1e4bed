"""Films of a payoff matrix: a game of the closest pair, and a game of the most one-sided one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from evorl.matches.players import Entry, Player
from evorl.matches.records import Record
from evorl.matches.schedule import pairs_of
from evorl.opponents.play import Matches, Pair
from evorl.record.video import write_video
from evorl.util.text import say


def write(out: Path, entry: Entry, matches: Matches[Player], record: Record) -> None:
    """Write and tell the films. Raises `BadRequest` for a world that draws no pictures."""
    names = entry.world.side_names or ("side 0", "side 1")
    for what, pair in chosen(entry.players, record).items():
        film = matches.film(pair)
        first = next(film.frames)
        players = [entry.players[who].name for who in ((pair.b, pair.a) if pair.first % 2 else (pair.a, pair.b))]
        caption = ", ".join(f"{side}: {player}" for side, player in zip(names, players, strict=True))
        path = write_video(out / what, chain([first], film.frames), film.fps, caption)
        say(f"{what.replace('_', ' ')} pair: {path}")


def chosen(players: Sequence[Player], record: Record) -> dict[str, Pair]:
    """Return the game to show of each pair: the first one whose points are nearest to the pair's score.

    A policy and its copy are no pair.
    """
    others = {names: pair for names, pair in pairs_of(players).items() if names[0] != names[1]}
    if not others:
        return {}
    scores = {names: float(np.mean(record.points[names])) for names in others}
    by_distance = sorted(scores, key=lambda names: abs(scores[names] - 0.5))
    shown = {"closest": by_distance[0], "most_one_sided": by_distance[-1]}
    games = {what: int(np.abs(np.array(record.points[x]) - scores[x]).argmin()) for what, x in shown.items()}
    return {what: Pair(*others[names], games[what], games[what] + 1) for what, names in shown.items()}
