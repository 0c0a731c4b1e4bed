"""Text of any origin, before a person sees it."""

from __future__ import annotations

import io
import json
import logging
import math
import unicodedata

import pytest

from evorl.util.errors import BadRequest, reason
from evorl.util.text import as_json, listed, printable, say

BIDI = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07\x1b[2J", r"\x1b]0;title\x07\x1b[2J"),
        ("done\rfailed", r"done\rfailed"),
        ("a\0b\x7f", r"a\x00b\x7f"),
        ("\x9b31m", r"\x9b31m"),  # C1: the same as ESC [
        ("run\u202e1\u2066\u200f", r"run\u202e1\u2066\u200f"),
        ("a\u2028b", r"a\u2028b"),
        ("name\udce9", r"name\udce9"),  # of a file name that is no UTF-8
        ("two\nlines\tand a tab", r"two\nlines\tand a tab"),
        ("é – 日本 \U0001f469\u200d\U0001f4bb ±", "é – 日本 \U0001f469\u200d\U0001f4bb ±"),
    ],
)
def test_controls_are_shown_as_escapes_and_letters_stay(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_every_sign() -> None:
    text = "".join(map(chr, range(0x110000)))
    shown = printable(text)
    assert shown == printable(shown)
    assert not any(unicodedata.category(sign) in ("Cc", "Zl", "Zp", "Cs") for sign in shown)
    assert not any(unicodedata.bidirectional(sign) in BIDI for sign in shown)
    assert printable(text, lines=True).count("\n") == 1


def test_errors_of_others_are_one_printable_line() -> None:
    assert str(BadRequest("unknown \x1b[31mkey\nevorl: all is well", "rl.\rlr")) == (
        r"rl.\rlr: unknown \x1b[31mkey\nevorl: all is well"
    )
    assert reason(RuntimeError("boom\x1b]52;c;aGk=\x07")) == r"RuntimeError: boom\x1b]52;c;aGk=\x07"


def test_say_keeps_lines() -> None:
    out = io.StringIO()
    say("one\n\x1b[2Jtwo", out)
    assert out.getvalue() == "one\n\\x1b[2Jtwo\n"


def test_names_are_listed_as_in_a_sentence() -> None:
    assert [listed([*names]) for names in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]


def test_records_of_the_log_are_printable(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever handles them, and the tracebacks of exceptions too."""
    try:
        raise RuntimeError("lost\x1b[2J")
    except RuntimeError as error:
        logging.getLogger("evorl").warning("%s is gone: %s", "host\x9b", "why\r", exc_info=error)
    assert caplog.messages == [r"host\x9b is gone: why\r"]
    assert r"RuntimeError: lost\x1b[2J" in caplog.text and "\x1b" not in caplog.text


def test_json_has_no_number_that_is_not_finite() -> None:
    text = as_json({"low": -math.inf, "é": [math.nan, 0.1], "name": "\ud800"})
    assert text.isascii() and "\n" not in text

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(text, parse_constant=refuse) == {"low": None, "é": [None, 0.1], "name": "\ud800"}
