"""What the checks of worlds, learners, evolvers, samplers and plugins share."""

from __future__ import annotations


class Nonconformity(AssertionError):
    """Which rule is broken, in one sentence."""


def require(holds: object, sentence: str) -> None:
    """Raise `Nonconformity` with this sentence unless something holds."""
    if not holds:
        raise Nonconformity(sentence)
