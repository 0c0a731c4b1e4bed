"""What the paper of Lamarckian has."""

from __future__ import annotations

from evorl.reproduction.table import Paper, Unmeasured

PAPER = Paper(
    title="Lamarckian",
    source="Bai et al. 2022, Lamarckian (arXiv 2209.10055, IEEE Transactions on Games 2024). Of the paper we know the "
    "claims of its abstract and the programs of its code, and no table.",
    tables=("pbt", "asynchronous", "sampling", "football", "soccer", "league_soccer", "nsga2", "reward"),
    unmeasured=(
        Unmeasured(
            "Game balancing",
            "evolved players test the balance of a commercial game",
            "Bai et al. 2022, abstract",
            "the game is not public; balance/duel is a game of ours",
        ),
    ),
)
