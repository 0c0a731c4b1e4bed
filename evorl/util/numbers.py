"""Numbers as they are shown: in tables, pictures and on a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONG = re.compile(r"-?\d+(\.\d+([eE][-+]?\d+)?|[eE][-+]?\d+)")


def format_number(value: float, *, signed: bool = False) -> str:
    """Format with four significant digits and thin spaces between thousands: ``0.02573``, ``13.4``, ``1 250 000``.

    ``signed``: with a plus where it is positive.
    """
    text = f"{value:+.4g}" if signed else f"{value:.4g}"
    if not 1e4 <= abs(float(text)) < 1e15:
        return text
    return format_fixed(value, 0, signed=signed)


def short_texts(texts: Sequence[str]) -> list[str]:
    """Shorten numbers written as text to four digits, or as many as distinguish unequal ones; others stay.

    Whole numbers stay as they are: they are often names.
    """
    long = [_LONG.fullmatch(text) is not None for text in texts]
    for digits in range(4, 17):
        written = [f"{float(text):.{digits}g}" if number else text for text, number in zip(texts, long, strict=True)]
        if len({*written}) == len({*texts}):
            return written
    return list(texts)


def format_fixed(value: float, decimals: int, *, signed: bool = False) -> str:
    """Format with so many decimals, and thin spaces between thousands from 10 000 on."""
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    return text.replace(",", "\u2009" if abs(value) >= 9999.5 else "")
