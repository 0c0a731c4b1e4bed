"""The errors that a person caused and can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadRequest(ValueError):
    """The request cannot be met: a door prints the one line and exits with code 2, nothing written.

    ``key`` is the dotted config key at fault, relative to whoever raises it; each caller that
    knows a prefix adds it with `under`.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key

    def under(self, prefix: str) -> BadRequest:
        return BadRequest(self.args[0], f"{prefix}.{self.key}" if self.key else prefix)

    def __str__(self) -> str:
        return f"{self.key}: {self.args[0]}" if self.key else str(self.args[0])


def nearest(word: str, choices: Iterable[str]) -> str:
    """``"; did you mean X?"`` for the choice nearest to a misspelt word, or an empty string."""
    found = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""
