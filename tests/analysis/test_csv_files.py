"""CSV that spreadsheets open."""

from __future__ import annotations

import csv
import io
import math

import pytest

from evorl.analysis.csv_files import to_csv

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-x", "=-1"]
NUMBERS = ["-0.5", "+5", "-1e-3", "1e+20", "-inf", "3.", "-.5"]


def read(data: bytes) -> list[list[str]]:
    return [*csv.reader(io.StringIO(data.decode(), newline=""))]


@pytest.mark.parametrize("text", FORMULAS)
def test_text_that_begins_a_formula_is_quoted(text: str) -> None:
    shown = "'" + text.replace("\r", "\\r")
    assert read(to_csv([text], [[text]])) == [[shown], [shown]]
    assert to_csv([text], [[text]], raw=True).decode() == f"{text}\n{text}\n"


@pytest.mark.parametrize("text", [*NUMBERS, "ppo", "a=b", "", "a-b"])
def test_numbers_and_other_text_stay(text: str) -> None:
    assert read(to_csv(["x"], [[text]])) == [["x"], [text]]


def test_values_keep_all_digits() -> None:
    row = [-0.1 - 0.2, -3, None, True, -math.inf]
    assert read(to_csv([*"abcde"], [row])) == [[*"abcde"], ["-0.30000000000000004", "-3", "", "True", "-inf"]]


def test_controls_are_escapes_unless_raw() -> None:
    assert to_csv(["x"], [["a\x1b[2J\0"]]) == b"x\na\\x1b[2J\\x00\n"
    assert to_csv(["x"], [["a\x1b[2J"]], raw=True) == b"x\na\x1b[2J\n"
    assert to_csv(["x"], [["\udce9"]], raw=True) == b"x\n\\udce9\n"
