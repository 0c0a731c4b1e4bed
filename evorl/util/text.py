"""Text for a person: that of data (names, reasons, exceptions of others) made safe to show, and lists of names."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Sequence
from typing import TextIO

_CONTROLS = "\0-\x1f\x7f-\x9f"  # C0 with ESC, CR and NUL; DEL; C1
_REORDERS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi controls, with which text reads unlike it is
_SEPARATES = "\u2028\u2029\ufeff"
_LONE = "\ud800-\udfff"  # what no encoding can write
_UNSAFE = re.compile(f"[{_CONTROLS}{_REORDERS}{_SEPARATES}{_LONE}]")
_UNSAFE_IN_LINES = re.compile(f"(?![\t\n]){_UNSAFE.pattern}")


def printable(text: object, *, lines: bool = False) -> str:
    r"""Return text in which what controls a terminal, or reorders the text, is written as its escape: ``\x1b``.

    These are the C0 and C1 control characters, DEL, bidi controls, line separators and lone surrogates. ``lines``:
    line breaks and tabs stay.
    """
    return (_UNSAFE_IN_LINES if lines else _UNSAFE).sub(lambda sign: ascii(sign[0])[1:-1], str(text))


def say(text: object, stream: TextIO | None = None) -> None:
    """Print text of any origin, at once, as `printable`; it may have several lines."""
    print(printable(text, lines=True), file=stream, flush=True)


def as_json(value: object) -> str:
    """Return one line of ASCII. A number that is not finite is null, as JSON has none."""
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them: ``"a, b and c"``."""
    *before, last = names or [""]
    return f"{', '.join(before)} and {last}" if before else last


class PrintableRecords(logging.Filter):
    """Makes the message and the traceback of every record printable, whoever writes it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(record.getMessage(), lines=True), ()
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = printable(
                "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n"), lines=True
            )
        return True
