"""Tables of runs and groups of runs, with 95 % intervals, as CSV and as Markdown."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from evorl.analysis import csv_files
from evorl.analysis.groups import Group, format_value, telling
from evorl.analysis.runs import RunRecord, State, is_number
from evorl.analysis.sweeps import PendingJob, seeks_lowest
from evorl.ops.student_t import half_width
from evorl.util.numbers import format_fixed, format_number, short_texts
from evorl.util.text import printable

Row = dict[str, Any]
"""Column name -> value. All rows of a table have the same columns; None is an empty cell."""

INTERVAL = " ±95%"
"""Suffix of columns with the half-width of the 95 % interval of a mean over seeds."""

_FIRST = ("steps", "seconds", "steps_per_second", "train/return", "eval/return_mean", "eval/return_std", "fitness")
# these and all ``_mean`` columns have an interval over seeds
_WITH_INTERVAL = ("steps_per_second", "train/return", "fitness")
_TERMINAL = ("steps", "seconds", "train/return", "eval/return_mean", "fitness")
_NUMBER = re.compile(r"[-\d.e+\u2009]*( ± [-\d.e+\u2009]+)?")
# metrics in the CSV only; keys and genes may have names with such ends, too
_CSV_ONLY = re.compile(r"eval/(.*_min|.*_max|episodes|stochastic_return_std)")


def summary_metrics(run: RunRecord) -> dict[str, float]:
    """Return the summary of a run: its newest metrics, replaced by those of ``result.json`` if it has one."""
    evaluated = {name: series.values[-1] for name, series in run.series.items() if name.startswith("eval/")}
    evaluated |= {f"eval/{name}": value for name, value in (run.result or {}).get("eval", {}).items()}
    own = evaluated.pop("eval/fitness_mean", evaluated.get("eval/return_mean"))  # as evorl.rl.evaluation.fitness
    columns = evaluated | {
        "steps": run.steps,
        "seconds": run.seconds,
        "steps_per_second": run.steps / run.seconds if run.seconds else math.nan,
        "train/return": run.last("train/return"),
        "fitness": (run.result or {}).get("fitness", own),
    }
    return {key: float(value) for key, value in columns.items() if is_number(value)}


def fittest_first(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Sort runs: the best one first, be it the highest or the lowest (`seeks_lowest`); those without a fitness last."""
    sign = 1.0 if seeks_lowest(runs) else -1.0
    return sorted(runs, key=lambda run: sign * summary_metrics(run).get("fitness", sign * math.inf))


def run_rows(groups: Sequence[Group], pending: Sequence[PendingJob] = ()) -> list[Row]:
    """Return one row per run or pending job: path, state, reason of a failure, varied keys, seed, metrics."""
    runs = [(group, run, summary_metrics(run)) for group in groups for run in group.runs]
    columns = _columns([measured for _, _, measured in runs])
    varied = [key for job in pending for key in job.words if key not in ("seed", "mdp")]
    keys = list(dict.fromkeys([*groups[0].values, *varied]))
    begun: list[Row] = [
        {"run": str(run.directory), "state": run.state, "reason": run.reason}
        | {key: format_value(group.values.get(key, run.choices.get(key, run.config.get(key)))) for key in keys}
        | {"seed": run.seed}
        | {column: measured.get(column) for column in columns}
        for group, run, measured in runs
    ]
    return begun + [
        {"run": str(job.directory), "state": job.state, "reason": job.reason or ""}
        | {key: job.directory.absolute().parent.name if key == "folder" else job.words.get(key, "") for key in keys}
        | {"seed": job.words.get("seed")}
        | dict.fromkeys(columns)
        for job in pending
    ]


def group_rows(groups: Sequence[Group]) -> list[Row]:
    """Return one row per group: varied keys, number of runs, and mean and interval of each metric over its runs."""
    measured = [[summary_metrics(run) for run in telling(group.runs)] for group in groups]
    columns = _columns([row for rows in measured for row in rows])
    return [
        _varied(group)
        | {"runs": len(group.runs), "state": _states(group.runs)}
        | {"seeds": " ".join(dict.fromkeys(str(run.seed) for run in group.runs))}
        | _means(rows, columns)
        for group, rows in zip(groups, measured, strict=True)
    ]


def to_csv(rows: Sequence[Row], *, raw: bool = False) -> bytes:
    """Format rows as CSV (`evorl.analysis.csv_files`); they may differ in their columns: several tables in one."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return csv_files.to_csv(columns, ([row.get(key) for key in columns] for row in rows), raw=raw)


def to_markdown(shown: Sequence[Mapping[str, str]]) -> str:
    """Format rows of text as a Markdown table."""
    return "".join(f"{line}\n" for line in markdown_rows(list(shown[0]), [list(row.values()) for row in shown]))


def markdown_rows(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False) -> list[str]:
    """The lines of a Markdown table; ``numbers``: columns beyond the first are set to the right."""
    rule = ["---", *["---:" if numbers else "---"] * (len(header) - 1)]
    lines = [[cell.replace("|", r"\|").replace("\n", " ") for cell in line] for line in (header, rule, *rows)]
    return [printable(f"| {' | '.join(line)} |") for line in lines]


def format_rows(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Format the cells as text, without empty columns and columns that only the CSV has."""
    used = [key for key in rows[0] if any(row[key] not in (None, "") for row in rows)]
    csv_only = (key for key in used if key.endswith(INTERVAL) or _CSV_ONLY.fullmatch(key))
    left_out = {*csv_only, *(key for key in used if _is_std_of_mean(key, rows[0]))}
    shown = [key for key in used if key not in left_out]
    columns = {key: [_cell(row, key) for row in rows] for key in shown}
    texts = {key: column if key == "run" else short_texts(column) for key, column in columns.items()}
    return [{_heading(key, rows[0], used): texts[key][number] for key in shown} for number in range(len(rows))]


def terminal_columns(rows: Sequence[Row]) -> list[dict[str, str]]:
    """`format_rows`, limited to the columns that fit on a terminal."""
    kept = [key for key in rows[0] if _is_for_terminal(key.removesuffix(INTERVAL))]
    return format_rows([{key: row[key] for key in kept} for row in rows])


def numeric_columns(shown: Sequence[Mapping[str, str]]) -> set[str]:
    """Return the columns whose cells are all numbers."""
    return {key for key in shown[0] if all(_NUMBER.fullmatch(row[key]) for row in shown)}


def format_with_interval(value: float, wide: float) -> str:
    """Format a number and its uncertainty (two digits) with the same decimals: ``0.25 ± 0.11``, ``166 ± 200``."""
    if not 1e-5 < wide < 1e15:
        return f"{format_number(value)} ± {format_number(wide)}"
    digits = 1 - math.floor(math.log10(float(f"{wide:.1e}")))  # after rounding: 0.0999 has the decimals of 0.10
    return f"{format_fixed(value, max(digits, 0))} ± {format_fixed(round(wide, digits), max(digits, 0))}"


def _is_for_terminal(column: str) -> bool:
    return column in _TERMINAL or not ("/" in column or column in _FIRST)


def _means(rows: Sequence[dict[str, float]], columns: Sequence[str]) -> Row:
    means: Row = {}
    for column in columns:
        values = [row[column] for row in rows if column in row]
        means[column] = float(np.mean(values)) if values else None
        if column in _WITH_INTERVAL or column.endswith("_mean"):
            means[column + INTERVAL] = half_width(values) if len(values) > 1 else None
    return means


def _columns(measured: Sequence[dict[str, float]]) -> list[str]:
    names = {name for row in measured for name in row}
    return [name for name in _FIRST if name in names] + sorted(names.difference(_FIRST))


def _varied(group: Group) -> Row:
    return {key: format_value(value) for key, value in group.values.items()}


def _states(runs: Sequence[RunRecord]) -> str:
    counts = Counter(run.state for run in runs)
    return ", ".join(f"{counts[state]} {state}" for state in get_args(State) if counts[state])


def _std_column(key: str) -> str:
    """Return the name of the standard deviation column that belongs to a mean column."""
    return key.removesuffix("_mean") + "_std"


def _is_std_of_mean(key: str, columns: Container[str]) -> bool:
    """Return whether a column is a standard deviation that is shown after ± in the cell of its mean."""
    mean = key.removesuffix("_std") + "_mean"
    return re.match("eval/.*_std$", key) is not None and mean in columns and mean + INTERVAL not in columns


def _heading(key: str, columns: Container[str], used: Container[str]) -> str:
    name = "steps/s" if key == "steps_per_second" else key
    if key + INTERVAL in used:
        return f"{name} ± 95 %"
    return f"{name} ± std" if _std_column(key) in used and _is_std_of_mean(_std_column(key), columns) else name


def _cell(row: Row, key: str) -> str:
    value = row[key]
    if key == "seed" or not is_number(value):  # a seed is a name: all of its digits count
        return "" if value is None else printable(value)
    behind = _std_column(key) if _is_std_of_mean(_std_column(key), row) else key + INTERVAL
    wide = row.get(behind)
    return format_number(value) if wide is None else format_with_interval(value, wide)
