"""The loop of a search over whole runs: an evolver proposes jobs, Hydra's launcher runs them, the evolver learns.

``population.jsonl`` in the directory of the sweep holds every evaluation that the evolver was told, and is its only
state. A resumed search replays the file into a new evolver, which then makes the same proposals. The batch that was
running when it was killed is launched again; finished jobs return their results at once. The evolver receives the
results of a batch together, so the order in which jobs end has no effect.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, groupby
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from evorl.analysis import sweeps
from evorl.analysis.runs import is_number
from evorl.ec.core import Evaluation, Individual, objective_name
from evorl.ec.space import Value
from evorl.jobs.best_job import name_best
from evorl.jobs.promotion import budget_of, result_after
from evorl.jobs.search import KEY, PLACE, SUBDIR, TOLD, Search, read_search
from evorl.record.result import read_result
from evorl.util import command, run_directory
from evorl.util.errors import BadRequest
from evorl.util.numbers import format_number
from evorl.util.text import printable, say
from evorl.util.types import Steps


def run_search(base: DictConfig, hydra: HydraContext, launcher: Launcher) -> None:
    """Run or continue a search in its directory until it has all its jobs.

    It ends early if every job so far failed. Raises `BadRequest` if the directory holds another search.
    """
    search, directory = read_search(base, hydra), Path(base.hydra.sweep.dir).absolute()
    search.check_place(directory)
    if (damaged := _read(directory)[1]) is not None:
        say(f"evorl: line {damaged} of {directory / TOLD} is damaged: the jobs from there on are told again")
    state = SearchState(search, directory)
    run_directory.write_json(directory, sweeps.SEARCH_FILE, search.identity())
    run_directory.replace(directory, "multirun.yaml", OmegaConf.to_yaml(base).encode())  # as Hydra's own sweeper does
    while (batch := state.next()) is not None:
        own = [[word for word in words if not word.startswith(f"{SUBDIR}=")] for words in batch]
        jobs = dict(zip(map(str, state.numbers), own, strict=True))
        sweeps.write_index(directory, jobs, {str(len(state.rows)): len(batch)})
        for evaluation in launcher.launch(batch, initial_job_idx=len(state.rows)):
            _ = evaluation.return_value  # raises for a job that ended without recording its failure
        if not state.take():
            break


def next_jobs(search: Search, directory: Path) -> dict[int, list[str]]:
    """Return the words of the jobs that a search would launch next, by job number. Raises `BadRequest`."""
    state = SearchState(search, directory)
    words = state.next() or []
    return dict(zip(state.numbers, words, strict=True))


class SearchState:
    """The state of a search: its evolver, and the rows of population.jsonl that the evolver was told."""

    def __init__(self, search: Search, directory: Path) -> None:
        self.search, self.directory = search, directory
        self.evolver = search.evolution.evolver(search.space, search.seed)
        self.rows: list[dict[str, Any]] = []
        self.homes: dict[int, Path] = {}  # the job of each individual that has a fitness
        self._worth: dict[int, float] = {}
        self._individuals: list[Individual] = []
        self.numbers: list[int] = []  # of the jobs of those that were asked for
        self._batch = 0
        self._recall(self._known_rows())

    def next(self) -> list[list[str]] | None:
        """The words of the jobs to launch now; None if the search is over.

        A batch that was launched before keeps its size: asked one by one, an evolver may propose other jobs.
        """
        keys, number = self.search.keys, len(self.rows)
        if number >= keys.jobs:
            return None
        size = sweeps.read_batches(self.directory).get(str(number)) or self.search.at_once
        self._individuals = self.evolver.ask(min(keys.jobs - number, size))
        fresh = count(len({row["job"] for row in self.rows}))
        self.numbers = [self._going_on(individual, fresh) for individual in self._individuals]
        return [
            self.search.job(individual, number, self._parent(individual))
            for individual, number in zip(self._individuals, self.numbers, strict=True)
        ]

    def take(self) -> bool:
        """Give the evolver the results of the jobs; return False without doing so if every job so far has failed.

        Raises `BadRequest` for a result that they do not have, and writes nothing; a corrected command uses the jobs.
        """
        rows = self.results()
        if not self.homes and all("failed" in row for row in rows):
            return False
        self._tell(self._individuals, rows)
        run_directory.replace(self.directory, TOLD, b"".join(msgspec.json.encode(row) + b"\n" for row in self.rows))
        return True

    def results(self) -> list[dict[str, Any]]:
        """The lines of population.jsonl for these jobs. Raises `BadRequest` as `take` does."""
        rows: list[dict[str, Any]] = []
        for individual, number in zip(self._individuals, self.numbers, strict=True):
            before = [*self.rows[-1:], *rows[-1:]]
            rows.append(self._row(individual, str(number), before[-1]["step"] if before else 0))
        return rows

    def _known_rows(self) -> Sequence[dict[str, Any]]:
        """The rows that were told, without the last batch if jobs of it failed: these may run again, unless jobs that
        were proposed later have begun."""
        rows = told_rows(self.directory)
        last = [row for row in rows if row["batch"] == rows[-1]["batch"]]
        repeats = any("failed" in row for row in last) and not self._later_began(rows)
        return rows[: -len(last)] if repeats else rows

    def _later_began(self, rows: Sequence[dict[str, Any]]) -> bool:
        """Whether a job that was proposed after these rows has begun: a new one, or one that was promoted."""
        newest = {row["job"]: row for row in rows}
        names = [entry.name for entry in run_directory.entries(self.directory)]
        new = any(name.isdecimal() and int(name) >= len(newest) for name in names)
        return new or any(map(self._went_on, newest.values()))

    def _went_on(self, row: Mapping[str, Any]) -> bool:
        """Whether the job of this row, its newest, has begun to train for more than it says."""
        ends = self.search.ends(Individual(row["id"], np.empty(0), role=row["role"]))
        budget = None if ends is None else budget_of(self.directory / row["job"])
        return ends is not None and budget is not None and budget > ends

    def _recall(self, rows: Sequence[dict[str, Any]]) -> None:
        """Replay the rows into a new evolver. Raises `BadRequest` if it proposes other individuals."""
        for _, group in groupby(rows, key=lambda row: row["batch"]):
            batch = list(group)
            individuals = self.evolver.ask(len(batch))
            if [self._proposal(individual) for individual in individuals] != [
                (row["id"], row["genes"]) for row in batch
            ]:
                raise BadRequest(f"{self.directory / TOLD} is of another search or another version of evorl", PLACE)
            self._tell(individuals, batch)

    def _tell(self, individuals: Sequence[Individual], rows: Sequence[dict[str, Any]]) -> None:
        evaluations = [_evaluation(individual, row) for individual, row in zip(individuals, rows, strict=True)]
        for evaluation, row in zip(evaluations, rows, strict=True):
            if "failed" not in row:
                self.homes[evaluation.individual.id] = self.directory / row["job"]
                self._worth[evaluation.individual.id] = evaluation.objectives[0]
        try:
            self.evolver.tell(evaluations)
        except BadRequest as error:
            raise error.under(f"{KEY}.evolver") from None
        self.rows += rows
        self._batch += 1

    def _parent(self, individual: Individual) -> Path | None:
        """The run that an individual's job starts from: its best parent's."""
        parents = [number for number in individual.parents if number in self.homes] if self.search.inherits else []
        return self.homes[max(parents, key=self._worth.__getitem__)] if parents else None

    def _going_on(self, individual: Individual, fresh: Iterator[int]) -> int:
        """The number of an individual's job: where jobs are stopped early, that of its parent, which goes on."""
        stopped = self.search.steps is not None and individual.parents
        return int(self.homes[individual.parents[0]].name) if stopped else next(fresh)

    def _proposal(self, individual: Individual) -> tuple[int, dict[str, Value]]:
        return individual.id, {
            name.lstrip("+"): value for name, value in self.search.space.values(individual.genes).items()
        }

    def _row(self, individual: Individual, job: str, steps: int) -> dict[str, Any]:
        """A line of population.jsonl, as in a run with a population, with the number of the job."""
        results, failed = job_outcome(self.directory / job, self.search.ends(individual))
        if math.isnan(results.get("return", 0.0)):  # its policy could not be evaluated: all objectives are unknown
            results = dict.fromkeys(self.search.evolution.wanted(self.search.space), math.nan) | results
        spent = sum(row["cost"] for row in self.rows if row["job"] == job)  # before it was stopped
        cost = max(int(results.get("steps", 0)) - spent, 0)
        number, genes = self._proposal(individual)
        objectives = self._objectives(results)
        failed = failed or next((f"its {name} is no number" for name, x in objectives.items() if not is_number(x)), "")
        return {
            "id": number, "parents": list(individual.parents), "role": individual.role,
            "birth": individual.birth, "genes": genes,
            "cost": cost, "objectives": objectives, "results": results,
            "step": steps + cost, "seconds": results.get("seconds"), "job": job, "batch": self._batch,
        } | ({"failed": failed} if failed else {})  # fmt: skip

    def _objectives(self, results: Mapping[str, float]) -> dict[str, float | None]:
        from evorl.population.objectives import objective_value

        arrays = {name: np.array([x]) for name, x in results.items()}
        return {
            objective_name(term): objective_value(term, arrays, f"{KEY}.evolver.objectives") if results else None
            for term in self.search.objectives
        }


def _evaluation(individual: Individual, row: Mapping[str, Any]) -> Evaluation:
    result = {name: np.array([math.nan if x is None else x]) for name, x in row["results"].items()}
    if {"return", "return_std", "episodes"} <= result.keys():  # the deviation is recorded for returns only
        episodes = _sample_like(*(result[name].item() for name in ("return", "return_std", "episodes")))
        result |= {name: episodes for name in ("fitness", "return") if result[name] == result["return"]}
    objectives = tuple(math.nan if x is None else float(x) for x in row["objectives"].values())
    return Evaluation(individual, objectives, row["cost"], result)


def _sample_like(mean: float, std: float, count: float) -> NDArray[np.float64]:
    """``count`` numbers [E] with this mean and deviation: a t-test needs no more of a job's episodes."""
    x = np.linspace(-1, 1, int(count))
    return mean + std * x / x.std() if count > 1 else np.array([mean])


# ------------------------------------------------------------------ results of the jobs


def job_outcome(job: Path, steps: int | None = None) -> tuple[dict[str, float], str]:
    """The numbers of a job's result by name, without the suffix _mean, and the reason of its failure or "".

    ``steps`` is the budget of a job that is stopped early. A number that is not finite is NaN."""
    try:
        result = read_result(job) if steps is None else result_after(job, steps)
    except (OSError, ValueError) as error:
        return {}, f"its result is damaged: {error}"
    if result is None:
        return {}, sweeps.failure_reason(job) or "it has no result"
    if not is_number(result.get("fitness")):
        return {}, "its fitness is no number"
    results = {name.removesuffix("_mean"): x for name, x in result.get("eval", {}).items()}
    results |= {name: result.get(name) for name in ("fitness", "steps", "seconds")}
    return {name: float(x) if is_number(x) else math.nan for name, x in results.items()}, ""


class _ToldRow(msgspec.Struct):
    """What a line of a search's population.jsonl has."""

    id: int
    parents: list[int]
    role: str
    birth: int
    genes: dict[str, Value]
    batch: Annotated[int, msgspec.Meta(ge=0)]
    job: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,9}$")]
    step: Steps
    cost: Steps
    seconds: float | None
    objectives: dict[str, float | None]
    results: dict[str, float | None]
    failed: str = ""


def told_rows(directory: Path) -> list[dict[str, Any]]:
    """The rows of a search's population.jsonl; empty before the first batch. See `_read`."""
    return _read(directory)[0]


def _read(directory: Path) -> tuple[list[dict[str, Any]], int | None]:
    """The rows of population.jsonl, and the number of its first damaged line if there is one.

    From that line on, rows are left out, and the batch before it as well, of which some may be missing. No job is lost:
    the search proposes these jobs again, and finds their results. Raises `BadRequest` for what is no file of evorl's.
    """
    try:
        lines = bytes(run_directory.read(directory, TOLD, run_directory.ROWS)).split(b"\n")
    except FileNotFoundError:
        return [], None
    except run_directory.Unsafe as error:
        raise error.under(PLACE) from None
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        try:
            rows.append(run_directory.parse_json(line))
            msgspec.convert(rows[-1], _ToldRow)
        except ValueError:  # msgspec's errors are ValueErrors
            known = rows[: number - 1]
            return [row for row in known if row["batch"] != known[-1]["batch"]], number
    return rows, None


def name_best_job(search: Search, directory: Path) -> None:
    """Name the best job, if any has a fitness."""
    if sound := _sound(told_rows(directory)):
        name_best(search, directory, sound)


def _sound(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest row of each job that did not fail. A job has several if it was stopped early, and went on."""
    newest = {row["job"]: row for row in rows}
    return [row for row in newest.values() if "failed" not in row]


def print_outcome(search: Search, directory: Path) -> bool:
    """Print the best jobs and the failed ones; return whether any has a fitness."""
    rows = told_rows(directory)
    if not rows:  # all jobs of the first batch failed
        state = SearchState(search, directory)
        state.next()
        rows = state.results()
    lines = [f"  {row['job']}: {row['failed']}" for row in rows if "failed" in row]
    sound = _sound(rows)
    if not sound:
        again = command.word(PLACE, str(directory))
        head = f"evorl: all of {len(rows)} jobs failed, and so the search ends; with {again} they run again"
        say("\n".join([head, *map(printable, lines)]), sys.stderr)
        return False
    if lines:
        head = f"evorl: {len(lines)} of {len(rows)} jobs failed, and have no fitness:"
        say("\n".join([head, *map(printable, lines)]), sys.stderr)
    if (best := name_best(search, directory, sound)) is not None:
        row = next(row for row in sound if row["job"] == best["job"])
        genes = " ".join(f"{name}={value}" for name, value in row["genes"].items())
        say(f"best: job {best['job']}, {_worth(best, row)}: {genes}")
    say(f"{len(rows)} of {search.keys.jobs} jobs evaluated: {command.line('report', str(directory))}")
    return True


def _worth(best: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Say how good the best job is, and how that is known."""
    if best.get("heldout") is None:
        return f"fitness {format_number(row['results']['fitness'])}"
    return sweeps.heldout_score(best)
