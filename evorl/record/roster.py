"""The best few individuals of a population as a small table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

MOST = 8
"""Individuals that are shown."""
COLUMNS = 10
"""Columns that are shown."""


def roster(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A line for each of these rows, whose columns are those of the first."""
    from rich.table import Table

    names = list(rows[0])[:COLUMNS]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in names:
        words = isinstance(rows[0][name], str)
        table.add_column(name, justify="left" if words else "right", no_wrap=True, overflow="ellipsis")
    for row in rows[:MOST]:
        table.add_row(*(_text(row.get(name)) for name in names))
    return table


def _text(value: Any) -> str:
    from rich.markup import escape

    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))
