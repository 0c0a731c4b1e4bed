"""What balances a game by learners."""

from __future__ import annotations

from evorl.reproduction.table import Paper

PAPER = Paper(
    title="Balancing a game",
    source="A use case of Lamarckian (Bai et al. 2022, whose game is not public), on a game of ours. The objectives "
    "are those of de Mesentier Silva et al. 2019 (arXiv 1907.01623): an even win rate, and a small change.",
    tables=("duel",),
)
