"""Who has won a game, as points (1 for a win, 1/2 for a draw, 0 for a defeat), and by how much."""

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


def margin(episode: Episode, other: Episode | None = None) -> float:
    """Return half of what the side that played ``episode`` earned more than the other side, ``other``.

    In a game in which one side loses what the other wins this is the side's return, and so it is without ``other``.
    """
    return episode.ret if other is None else (episode.ret - other.ret) / 2
