"""Printed tables of a report: formatted on a terminal, aligned columns in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TextIO

from evorl.analysis.groups import group_runs, runs_by_world
from evorl.analysis.runs import RunRecord
from evorl.analysis.sweeps import PendingJob, pending_by_world, short_names
from evorl.analysis.tables import group_rows, numeric_columns, run_rows, terminal_columns
from evorl.record.terminal import interactive
from evorl.util.text import printable

MAX_ROWS = 40
"""Most rows of a table that are printed."""
MAX_KEYS = 6
"""Most keys that distinguish the rows."""


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
        every = group_runs(several, by)
        groups = [replace(group, values=dict(islice(group.values.items(), len(by) or MAX_KEYS))) for group in every]
        left = len(every[0].values) - len(groups[0].values)
        if len(groups) < len(several):
            print_table(f"{world}: groups", terminal_columns(group_rows(groups)), stream or sys.stdout)
        rows = [row | {"run": names[Path(row["run"])]} for row in run_rows(groups, jobs[world])]
        print_table(f"{world}: runs", terminal_columns(rows), stream or sys.stdout, left)


def print_table(title: str, rows: Sequence[Mapping[str, str]], stream: TextIO, keys_left: int = 0) -> None:
    title = printable(title)
    rows = [{printable(key): printable(cell) for key, cell in row.items()} for row in rows]
    shown, left = rows[:MAX_ROWS], len(rows) - MAX_ROWS
    if interactive(stream):
        _draw(title, shown, stream)
    else:
        print("\n".join([title, *text_lines(shown)]), file=stream)
    more = [f"... and {left} more"] if left > 0 else []
    keys = f"{keys_left} more key{'s' * (keys_left != 1)}"
    more += [f"... and {keys}, by which the runs differ: table.md and the page have all"] if keys_left else []
    print("".join(f"{line}\n" for line in more), file=stream)


def text_lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
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
