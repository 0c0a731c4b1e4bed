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


def reason(error: BaseException) -> str:
    """The true cause of an error in one line: ``RuntimeError: the roof fell in``."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error) if isinstance(error, BadRequest) else f"{type(error).__name__}: {error}"
    _, told, trace = text.rpartition("Traceback (most recent call last):\n")
    if told:  # of an error in another process, whose text is all that came
        return next((line for line in trace.splitlines() if not line.startswith(" ")), text)
    lines = text.strip().split("\n")
    return lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"


def nearest(word: str, choices: Iterable[str]) -> str:
    """``"; did you mean X?"`` for the choice nearest to a misspelt word, or an empty string."""
    choices = list(choices)
    close = [one for one in choices if _one_edit(word, one)]
    found = difflib.get_close_matches(word, close or choices, 1, 0 if close else 0.5)
    return f"; did you mean {found[0]}?" if found else ""


def _one_edit(a: str, b: str) -> bool:
    """Whether one letter inserted, deleted, replaced or swapped with its neighbour makes one word the other."""
    if len(a) > len(b):
        a, b = b, a
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    if len(a) < len(b):
        return a[at:] == b[at + 1 :]
    return a[at + 1 :] == b[at + 1 :] or (a[at : at + 2] == b[at : at + 2][::-1] and a[at + 2 :] == b[at + 2 :])
