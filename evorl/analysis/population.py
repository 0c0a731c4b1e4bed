"""Reader of ``population.jsonl``, the log of a population or a search: individuals, parents, steps and objectives.

Shapes: N individuals in the order in which the evolver received them, M objectives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from evorl.analysis.groups import Group
from evorl.analysis.runs import RunRecord, flatten, further_lines, is_number, read_json
from evorl.analysis.statistics import Floats, thinned
from evorl.analysis.sweeps import SEARCH_FILE, read_best
from evorl.analysis.tables import Row, fittest_first
from evorl.ec.core import ranks_by_fitness
from evorl.ops.pareto import front
from evorl.util import run_directory

MAX_GROUPS = 6
"""Most groups whose population is shown."""
TABLE_ROWS = 10
"""Rows of a table on the page."""


class LoggedIndividual(msgspec.Struct):
    """A line of the file, as written by `evorl.population.loop`; null stands for values that are not finite."""

    id: int
    parents: tuple[int, ...]
    role: str
    birth: int
    genes: dict[str, float | str | bool]
    objectives: dict[str, float | None]
    step: int
    cost: int = 0
    results: dict[str, float | None] = {}
    seconds: float | None = None
    job: str | None = None
    """Run directory of the individual, in a search over jobs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PopulationLog:
    """The N >= 1 evaluated individuals of a run, or jobs of a search."""

    run: RunRecord
    """The run; of a search its directory, with its evolver and genes under ``ec`` of the config."""
    individuals: Sequence[LoggedIndividual]
    is_search: bool = False
    """Whether each individual is a complete job of a search."""
    damaged: int = 0
    """Number of complete lines that are not valid."""

    @cached_property
    def steps(self) -> Floats:
        """Environment steps of the run `[N]` when the evolver received each individual."""
        return np.array([line.step for line in self.individuals], np.float64)

    @cached_property
    def fitness(self) -> Floats:
        """Values `[N]` of `ranked_by`; NaN for failed individuals."""
        scores = [line.objectives.get(self.ranked_by, line.results.get(self.ranked_by)) for line in self.individuals]
        return np.array([math.nan if value is None else value for value in scores], np.float64)

    @cached_property
    def ranked_by(self) -> str:
        """Name of the quantity in `fitness`: an objective or the world's fitness (see `ranks_by_fitness`).

        For a search it is the first objective, because a search may minimise the fitness.
        """
        fit = not self.is_search and ranks_by_fitness(self.run.config.get("ec.objectives") or ())
        return "fitness" if fit and any("fitness" in line.results for line in self.individuals) else self.names[0]

    @property
    def names(self) -> list[str]:
        """Names of the objectives."""
        return list(self.individuals[0].objectives)

    @cached_property
    def objectives(self) -> Floats:
        """Objectives `[N, M]`; -inf in all of them if an individual failed in one."""
        rows = [[line.objectives.get(name) for name in self.names] for line in self.individuals]
        f = np.array([[math.nan if x is None else x for x in row] for row in rows], np.float64)
        return np.where(np.isnan(f).any(axis=1, keepdims=True), -np.inf, f)

    @cached_property
    def genes(self) -> dict[str, list[Any]]:
        """Values `[N]` of each gene; None if an individual lacks the gene."""
        names = dict.fromkeys(name for line in self.individuals for name in line.genes)
        return {name: [line.genes.get(name) for line in self.individuals] for name in names}

    @cached_property
    def row_of_id(self) -> dict[int, int]:
        """Row of each id; the last row if an individual was evaluated more than once."""
        return {line.id: row for row, line in enumerate(self.individuals)}

    @cached_property
    def rows_of_promoted_jobs(self) -> list[list[int]]:
        """The rows of each job that a search stopped early and let go on, so that it was evaluated several times."""
        rows: dict[str, list[int]] = {}
        for row, line in enumerate(self.individuals):
            rows.setdefault(line.job or f"row {row}", []).append(row)
        return [several for several in rows.values() if len(several) > 1]

    @cached_property
    def newest_of_jobs(self) -> NDArray[np.bool_]:
        """Whether a row `[N]` is the newest of its job."""
        newest = np.ones(len(self.individuals), bool)
        for rows in self.rows_of_promoted_jobs:
            newest[rows[:-1]] = False
        return newest

    @cached_property
    def named(self) -> int | None:
        """Row of the individual, or newest row of the job, that ``result.json`` or ``best.json`` names best."""
        if self.is_search:
            job = (read_best(self.run.directory) or {}).get("job")
            rows = [row for row, line in enumerate(self.individuals) if line.job is not None and line.job == job]
            return rows[-1] if rows else None
        number = _keys((self.run.result or {}).get("best")).get("individual")
        return self.row_of_id.get(number) if isinstance(number, int) else None

    @cached_property
    def best(self) -> int | None:
        """Row of the individual that is `named` best, before that of the highest `fitness`; None if there is neither.

        In a league the games name it, and the fitness does not: there it is None before the end of the run.
        """
        if self.named is not None or run_directory.exists(self.run.directory, "payoffs.jsonl"):
            return self.named
        fitness = np.where(self.newest_of_jobs & np.isfinite(self.fitness), self.fitness, -np.inf)
        return int(fitness.argmax()) if np.isfinite(fitness).any() else None

    @property
    def size(self) -> int:
        """Population size."""
        size = self.run.config.get("ec.population")
        return max(1, int(size)) if size is not None and is_number(size) else 1

    def generation_mean(self, values: Floats) -> Floats:
        """Return the moving mean `[N]` of values `[N]` over the last `size` of them, ignoring NaN."""
        known = np.isfinite(values)
        sums = np.cumsum(np.r_[0.0, np.where(known, values, 0.0)])
        counts = np.cumsum(np.r_[0, known])
        ends = np.arange(1, len(sums))
        begins = np.maximum(ends - self.size, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((sums[ends] - sums[begins]) / (counts[ends] - counts[begins]))

    @cached_property
    def front(self) -> NDArray[np.intp]:
        """Non-dominated rows, sorted by the first objective; the first of equal ones."""
        return self.front_of(len(self.individuals))

    def front_of(self, count: int) -> NDArray[np.intp]:
        """Return the `front` of the first ``count`` rows."""
        f = self.objectives[:count]
        sound = np.flatnonzero(np.isfinite(f).all(axis=1))
        _, first = np.unique(f[sound], axis=0, return_index=True)
        rows = sound[first]
        return rows[front(f[rows])] if len(rows) else rows

    @property
    def table_rows(self) -> list[int]:
        """Rows of the table of individuals: the front for several objectives, else the best, then the fittest."""
        if len(self.names) > 1:
            return [int(row) for row in self.front]
        order = [] if self.best is None else [self.best]
        order += [row for row in np.argsort(-self.fitness, kind="stable").tolist() if row != self.best]
        return [row for row in order[:TABLE_ROWS] if row == self.named or np.isfinite(self.fitness[row])]


def read_population_log(run: RunRecord) -> PopulationLog | None:
    """Read the population log of a run; None if it is empty. An incomplete last line is ignored."""
    return _read_log(run, is_search=False)


def read_search_log(directory: Path) -> PopulationLog | None:
    """Read the log of a search over jobs; None if it is empty."""
    settings = read_json(directory, SEARCH_FILE) or {}
    evolver = _keys(_keys(settings.get("hydra.sweeper")).get("evolver"))
    genes = {name.lstrip("+"): gene for name, gene in _keys(settings.get("genes")).items()}
    config = flatten({"ec": {**evolver, "genes": genes}})
    return _read_log(RunRecord(directory=directory, config=config), is_search=True)


def _keys(value: Any) -> dict[str, Any]:
    """The keys of a value of a document, which may be damaged: none if it is no mapping."""
    return value if isinstance(value, dict) else {}


def _read_log(run: RunRecord, is_search: bool) -> PopulationLog | None:
    decoder = msgspec.json.Decoder(LoggedIndividual)
    decoded = [_decode(decoder, text) for text in further_lines(run.directory, "population.jsonl")]
    lines = [line for line in decoded if line is not None]
    return (
        PopulationLog(run=run, individuals=lines, is_search=is_search, damaged=len(decoded) - len(lines))
        if lines
        else None
    )


def _decode(decoder: msgspec.json.Decoder[LoggedIndividual], text: bytes) -> LoggedIndividual | None:
    try:
        line = decoder.decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None
    return line if line.objectives else None


def population_logs(groups: Sequence[Group]) -> dict[str, PopulationLog]:
    """Return the population log of the fittest run of each group by title, for at most `MAX_GROUPS` groups."""
    logs: dict[str, PopulationLog] = {}
    for group in groups:
        runs = [run for run in group.runs if run_directory.exists(run.directory, "population.jsonl")]
        for run in fittest_first(runs)[:1]:
            if len(logs) < MAX_GROUPS and (population := read_population_log(run)):
                which = f" ({Path(run.directory).name})" if len(group.runs) > 1 else ""
                logs[(group.label if len(groups) > 1 else "Population") + which] = population
    return logs


def individual_rows(log: PopulationLog) -> list[Row]:
    """Return a row with all genes for each of `PopulationLog.table_rows`."""
    return [_row(log, number) for number in log.table_rows]


def sampled_rows(log: PopulationLog, genes: int = 8) -> list[Row]:
    """Return up to `TABLE_ROWS` of `individual_rows`, evenly sampled, with the first few genes."""
    chosen = log.table_rows
    return [_row(log, chosen[place], genes) for place in thinned(len(chosen), TABLE_ROWS)]


def _row(log: PopulationLog, number: int, genes: int | None = None) -> Row:
    line = log.individuals[number]
    values: Mapping[str, Any] = {name: log.genes[name][number] for name in list(log.genes)[:genes]}
    results = {name: line.results.get(name) for name in log.individuals[0].results if name not in line.objectives}
    left_out = {"…": "…"} if genes is not None and len(log.genes) > genes else {}
    measured = {**line.objectives, **results, **values, **left_out}
    before = {
        "individual": str(line.id), **({"job": line.job} if log.is_search else {}),
        "parents": " ".join(map(str, line.parents)), "role": line.role, "step": line.step,
    }  # fmt: skip
    after = {"cost": line.cost, "seconds": line.seconds}

    def apart(own: Row) -> Row:
        """Columns of the evaluation itself, beside a result of the game, an objective or a gene of the same name."""
        return {f"evaluation {name}" if name in measured else name: value for name, value in own.items()}

    return {**apart(before), **measured, **apart(after)}
