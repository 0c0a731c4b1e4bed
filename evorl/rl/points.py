"""Who has won a game, as points: 1 for a win, 1/2 for a draw, 0 for a defeat."""

from __future__ import annotations

from evorl.rl.core import Episode


def points(episode: Episode, other: Episode | None = None) -> float:
    """Return the points of the side that played ``episode``; ``other`` is that of the other side, if it was played too.

    The result ``win`` says who has won, in a world that reports it. Else the greater return has, or a return above 0.
    """
    if "win" in episode.results:
        won = episode.results["win"]
        return won if other is None else (won + 1 - other.results["win"]) / 2
    lead = episode.ret - (0.0 if other is None else other.ret)
    return 0.5 + 0.5 * ((lead > 0) - (lead < 0))
