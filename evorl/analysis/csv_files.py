"""CSV of tables that spreadsheets may open: what is text stays text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from evorl.util.text import printable

_BEGINS_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|nan)")


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]], *, raw: bool = False) -> bytes:
    r"""Format a table as CSV with all digits; None is an empty cell.

    Text that a spreadsheet would take for a formula, since it begins with ``= + - @``, a tab or CR and is no number,
    gets an apostrophe in front (OWASP, CSV injection); control characters become `printable`. ``raw``: text as it is.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    cell = _as_it_is if raw else _safe
    writer.writerow(map(cell, header))
    writer.writerows(map(cell, row) for row in rows)
    return out.getvalue().encode(errors="backslashreplace")


def _as_it_is(value: Any) -> Any:
    return value


def _safe(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    mark = "'" if value.startswith(_BEGINS_FORMULA) and not _NUMBER.fullmatch(value) else ""
    return mark + printable(value, lines=True)
