"""What policies learn from opponents."""

from __future__ import annotations

from evorl.reproduction.table import Paper

PAPER = Paper(
    title="Opponents",
    source="No paper: what is learned against snapshots and by plain self-play, where nobody meets the rule player.",
    tables=("league_pong", "league_volley"),
)
