"""What the paper of AES-RL has."""

from __future__ import annotations

from evorl.reproduction.table import Paper

PAPER = Paper(
    title="AES-RL",
    source="Lee et al. 2020, An Efficient Asynchronous Method for Integrating Evolutionary and Gradient-based Policy "
    "Search (NeurIPS). Its tables are not known to us, only what they compare.",
    tables=("performance", "rules", "time_efficiency"),
)
