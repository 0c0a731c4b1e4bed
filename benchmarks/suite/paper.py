"""The baselines of evorl itself."""

from __future__ import annotations

from evorl.reproduction.table import Paper

PAPER = Paper(
    title="Baselines",
    source="No paper: what the learners and evolvers do at their own settings, beside Stable-Baselines3.",
    tables=(
        "on_policy",
        "off_policy",
        "more_worlds",
        "other_learners",
        "tuned",
        "atari",
        "pixels",
        "evolution",
        "searches",
        "no_difference",
    ),
)
