"""All numbers of runs in long form, one value a row, as CSV or as parquet: what other programs draw and compare."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from evorl.analysis import csv_files
from evorl.analysis.comparison import VERDICT, Comparison
from evorl.analysis.jobs import read_job_log
from evorl.analysis.population import read_population_log
from evorl.analysis.runs import RunRecord, is_number
from evorl.analysis.tables import Row, summary_metrics

Columns = Mapping[str, Sequence[Any]]
"""A table by column: numbers, text, or None where a cell is empty."""


def long_tables(worlds: Mapping[str, Sequence[RunRecord]], comparisons: Sequence[Comparison]) -> dict[str, Columns]:
    """Return the tables by name.

    ``metrics``: every recorded value of every run. ``results``: the summary of each run. ``config``: every key of each
    run. ``individuals``: what the runs of populations logged. ``jobs``: what the workers of those with a shared critic
    did. ``statistics``: the aggregates of the groups, with their intervals. Tables without rows are left out.
    """
    every = [(world, run) for world, runs in worlds.items() for run in runs]
    tables = {
        "metrics": _metrics(every),
        "results": by_column(
            {"world": world, "run": str(run.directory), "state": run.state, "metric": name, "value": value}
            for world, run in every
            for name, value in summary_metrics(run).items()
        ),
        "config": by_column(
            {"world": world, "run": str(run.directory), "key": key, "value": "" if value is None else str(value)}
            for world, run in every
            for key, value in run.config.items()
        ),
        "individuals": by_column(row for world, run in every for row in _individuals(world, run)),
        "jobs": by_column(row for world, run in every for row in _jobs(world, run)),
        "statistics": by_column(row for comparison in comparisons for row in _statistics(comparison)),
    }
    return {name: columns for name, columns in tables.items() if columns}


def by_column(rows: Iterable[Row]) -> Columns:
    """Rows as columns of one kind each. A key that a row lacks is None; a column of several kinds becomes text."""
    listed = list(rows)
    columns = {key: [row.get(key) for row in listed] for key in dict.fromkeys(key for row in listed for key in row)}
    return {key: _alike(column) for key, column in columns.items()}


def to_csv(columns: Columns, *, raw: bool = False) -> bytes:
    """Format a table as CSV (`evorl.analysis.csv_files`)."""
    return csv_files.to_csv(list(columns), zip(*columns.values(), strict=True), raw=raw)


def to_parquet(columns: Columns) -> bytes:
    """Format a table as parquet; repeated text is stored once. Integers that its numbers cannot hold become text."""
    import pyarrow
    import pyarrow.parquet

    def stored(column: Sequence[Any]) -> Any:
        try:
            return pyarrow.array(column)
        except (OverflowError, pyarrow.ArrowInvalid):  # such as a seed of 64 bits
            return pyarrow.array(_as_text(column))

    out = io.BytesIO()
    table = pyarrow.table({name: stored(column) for name, column in columns.items()})
    pyarrow.parquet.write_table(table, out, compression="zstd")
    return out.getvalue()


def _metrics(every: Sequence[tuple[str, RunRecord]]) -> Columns:
    columns: dict[str, list[Any]] = {name: [] for name in ("world", "run", "metric", "step", "time", "value")}
    for world, run in every:
        for name, series in run.series.items():
            columns["world"] += [world] * len(series)
            columns["run"] += [str(run.directory)] * len(series)
            columns["metric"] += [name] * len(series)
            for column, values in (("step", series.steps), ("time", series.seconds), ("value", series.values)):
                columns[column] += values.tolist()
    return columns if columns["value"] else {}


def _individuals(world: str, run: RunRecord) -> Iterator[dict[str, Any]]:
    log = read_population_log(run)
    for line in log.individuals if log else ():
        kinds: dict[str, Mapping[str, Any]] = {"objective": line.objectives, "result": line.results, "gene": line.genes}
        for kind, name, value in ((kind, name, value) for kind, of in kinds.items() for name, value in of.items()):
            number = float(value) if is_number(value) else None
            yield {
                "world": world, "run": str(run.directory), "individual": line.id, "step": line.step,
                "parents": " ".join(map(str, line.parents)), "role": line.role, "birth": line.birth,
                "cost": line.cost, "seconds": line.seconds, "kind": kind, "name": name, "value": number,
                "text": None if value is None or number is not None else str(value),
            }  # fmt: skip


def _jobs(world: str, run: RunRecord) -> Iterator[dict[str, Any]]:
    log = read_job_log(run)
    for job in log.jobs if log else ():
        yield {"world": world, "run": str(run.directory), **asdict(job)}


def _statistics(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for row in comparison.rows:
        keys = list(row)[: list(row).index("runs")]
        for name in (key.removesuffix(" low") for key in row if key.endswith(" low")):
            low, high = row[f"{name} low"], row[f"{name} high"]
            yield {
                "world": comparison.world, "at": comparison.scores.at,
                "group": ", ".join(f"{key}={row[key]}" for key in keys),
                "statistic": name, "value": row[name], "low": low, "high": high, "verdict": row[VERDICT],
            }  # fmt: skip


def _alike(column: list[Any]) -> list[Any]:
    known = [value for value in column if value is not None]
    if all(map(_is_numeric, known)) or len({*map(type, known)}) == 1:
        return column
    return _as_text(column)


def _as_text(column: Sequence[Any]) -> list[str | None]:
    return [None if value is None else str(value) for value in column]


def _is_numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
