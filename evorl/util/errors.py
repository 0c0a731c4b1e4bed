"""Errors that a user caused and can correct."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from evorl.util.plugins import blamed
from evorl.util.text import printable


class BadRequest(ValueError):
    """The request cannot be met. A command prints the line, exits with code 2 and writes nothing.

    ``key`` is the dotted config key at fault, relative to the code that raises the error. Each caller that
    knows a prefix adds it with `under`.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key

    def under(self, prefix: str) -> BadRequest:
        return BadRequest(self.args[0], f"{prefix}.{self.key}" if self.key else prefix)

    def __str__(self) -> str:
        return printable(f"{self.key}: {self.args[0]}" if self.key else self.args[0])


class Failure(RuntimeError):
    """A run cannot go on; the message says why and what to do. A command prints it alone and exits with code 1."""


def reason(error: BaseException) -> str:
    """The true cause of an error in one printable line: ``RuntimeError: no such level``.

    It begins with the plugin whose code failed: ``plugin my_package: RuntimeError: no such level``.
    """
    by = blamed(error)
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error) if isinstance(error, BadRequest | Failure) else f"{type(error).__name__}: {error}"
    _, marker, trace = text.rpartition("Traceback (most recent call last):\n")
    if marker:  # an error in another process, of which only the text arrived
        return printable(by + next((line for line in trace.splitlines() if not line.startswith(" ")), text))
    lines = text.strip().split("\n")
    return printable(by + (lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"))


@contextmanager
def wrong_data(error_of: Callable[[str], BadRequest]) -> Iterator[None]:
    """Raise ``error_of(reason)``, with the cause, for what data of the wrong kind raises in the body."""
    try:
        yield
    except BadRequest:
        raise
    except Exception as error:
        # of an error in a member of a cluster those that it had there
        kinds = getattr(error, "kinds", kinds_of(error))
        if not _of_wrong_data(kinds):
            raise
        raise error_of(reason(error)) from error


def kinds_of(error: BaseException) -> list[str]:
    """The names of an error's class and of those that it derives from, for processes that may not know the classes."""
    return [full_name(kind) for kind in type(error).__mro__]


def full_name(kind: type) -> str:
    """``ValueError``; ``package.module.Error`` for one that is not built in: packages have errors of the same name."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_WRONG = frozenset(
    full_name(kind)
    for kind in (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, MemoryError)
)


def _of_wrong_data(kinds: Sequence[str]) -> bool:
    """Whether data of the wrong kind raises an error of these classes: its own, then those that it derives from.

    PyTorch raises a plain RuntimeError for tensors of another shape; worlds and clusters have kinds of their own.
    """
    if "RuntimeError" in kinds:
        return kinds[0] in ("RuntimeError", "RecursionError")
    return not _WRONG.isdisjoint(kinds)


def nearest(word: str, choices: Iterable[str], descriptions: Callable[[], Mapping[str, str]] = dict) -> str:
    """``"; did you mean X?"`` for the choice nearest to a wrong word, or an empty string.

    In this order: a choice that differs in upper and lower case alone, one a letter away, one that it abbreviates or
    spells out, one whose text in ``descriptions`` contains it, or the most similar one.
    """
    choices = list(choices)
    if alike := [choice for choice in choices if choice.casefold() == word.casefold()]:
        return f"; did you mean {alike[0]}?"
    close = [choice for choice in choices if one_edit(word, choice)] or [
        choice for choice in choices if abbreviates(choice, word)
    ]
    near = difflib.get_close_matches(word, close, 1, 0) or _meant(word, descriptions())
    near = near or difflib.get_close_matches(word, choices, 1, 0.5)
    return f"; did you mean {near[0]}?" if near else ""


def nearest_or_all(word: str, choices: Iterable[str]) -> str:
    """`nearest`, or ``"; there are: A, B"`` where no choice is near. For few choices."""
    choices = list(choices)
    return nearest(word, choices) or f"; there are: {', '.join(choices)}"


def abbreviates(a: str, b: str) -> bool:
    """Whether two names are the same, or one is the initials of the other: lr, learning_rate."""
    return a in (b, _initials(b)) or b == _initials(a)


def _meant(word: str, descriptions: Mapping[str, str]) -> list[str]:
    """The choice whose description starts most like a name of several words; at least a quarter must agree."""
    parts, shares = set(word.lower().split("_")), {}
    for choice, text in descriptions.items():
        clause = re.findall(r"\w+", re.split(r"[;:,(|]", text.lower())[0])
        if parts <= {*clause} and 4 * len(parts) >= len(clause):
            shares[choice] = len(parts) / len(clause)
    return [max(shares, key=shares.__getitem__)] if shares else []


def _initials(name: str) -> str:
    """The initials of a name of several words; a single word as it is."""
    parts = name.split("_")
    return "".join(part[:1] for part in parts) if len(parts) > 1 else name


def one_edit(a: str, b: str) -> bool:
    """Whether one letter inserted, deleted, replaced or swapped with its neighbour makes one word the other."""
    if len(a) > len(b):
        a, b = b, a
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    if len(a) < len(b):
        return a[at:] == b[at + 1 :]
    return a[at + 1 :] == b[at + 1 :] or (a[at : at + 2] == b[at : at + 2][::-1] and a[at + 2 :] == b[at + 2 :])
