"""Printed tables of a report: formatted on a terminal, aligned columns in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from evorl.analysis.groups import group_runs, runs_by_world
from evorl.analysis.runs import RunRecord
from evorl.analysis.sweeps import PendingJob, pending_by_world, short_names
from evorl.analysis.tables import group_rows, numeric_columns, run_rows, terminal_columns
from evorl.record.terminal import interactive

MAX_ROWS = 40
"""Most rows of a table that are printed."""


def print_tables(
    runs: Sequence[RunRecord],
    pending: Sequence[PendingJob] = (),
    by: Sequence[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Print the groups (if one has several runs) and the runs of each world, in a few columns."""
    members = runs_by_world(runs)
    jobs = pending_by_world(pending, list(members))
    _, names = short_names([*runs, *pending])
    for world, several in members.items():
        groups = group_runs(several, by)
        if len(groups) < len(several):
            _print(f"{world}: groups", terminal_columns(group_rows(groups)), stream or sys.stdout)
        rows = terminal_columns(run_rows(groups, jobs[world]))
        _print(f"{world}: runs", [row | {"run": names[Path(row["run"])]} for row in rows], stream or sys.stdout)


def _print(title: str, rows: Sequence[Mapping[str, str]], stream: TextIO) -> None:
    shown, left = rows[:MAX_ROWS], len(rows) - MAX_ROWS
    if interactive(stream):
        _draw(title, shown, stream)
    else:
        print("\n".join([title, *_lines(shown)]), file=stream)
    print(f"... and {left} more\n" if left > 0 else "", file=stream)


def _lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
    right = numeric_columns(rows)
    columns = [[key, *(row[key] for row in rows)] for key in rows[0]]
    wide = [max(map(len, column)) for column in columns]
    padded = [
        [cell.rjust(width) if column[0] in right else cell.ljust(width) for cell in column]
        for column, width in zip(columns, wide, strict=True)
    ]
    return ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]


def _draw(title: str, rows: Sequence[Mapping[str, str]], stream: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    right = numeric_columns(rows)
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for key in rows[0]:
        table.add_column(Text(key, "dim"), justify="right" if key in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row.values()))
    Console(file=stream).print(table)
