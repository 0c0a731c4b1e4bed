"""Choices that a command line names twice: a person's mistake, and what programs do that add words to others."""

from __future__ import annotations

from collections.abc import Sequence

from evorl.cli.overrides import GROUPS, TUNED
from evorl.util.errors import BadRequest

RUNS = ("resume", "init", "replay")
"""Keys that name the run to begin from."""


def check_chosen_once(words: Sequence[str]) -> None:
    """Raise `BadRequest` for a choice, or a run to begin from, that the words name twice with different values.

    Of any other key the last word counts.
    """
    given: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        if (_is_choice(word) or key in RUNS) and given.setdefault(key, value) != value:
            raise BadRequest(f"is given twice, as {given[key]} and as {value}; leave one out", key)


def last_choices(words: Sequence[str]) -> list[str]:
    """The words, with the last choice of each group in the place of its first."""
    last = {word.partition("=")[0]: word for word in words if _is_choice(word)}
    kept = dict.fromkeys(last.pop(word.partition("=")[0], None) if _is_choice(word) else word for word in words)
    return [word for word in kept if word is not None]


def _is_choice(word: str) -> bool:
    key, equals, _ = word.partition("=")
    return bool(equals) and (key in (*GROUPS, TUNED) or key.startswith("hydra/"))
