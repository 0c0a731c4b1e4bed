"""Sweep directories: the index of their jobs, and the state of each job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

import evorl
from evorl.analysis.runs import RunRecord, State, is_number, natural, read_json
from evorl.record import failure
from evorl.record.result import has_result
from evorl.util import run_directory
from evorl.util.numbers import format_number
from evorl.util.text import printable

INDEX_FILE = "sweep.json"
"""Index of a sweep: the overrides of each job, by its directory."""
SEARCH_FILE = "search.json"
"""Settings of a search: a sweep whose jobs are proposed by an evolver."""

BEST_FILE = "best.json"
"""The job that a search named best, and why (`evorl.jobs.best_job`)."""


def is_sweep(directory: Path) -> bool:
    """Return whether a directory holds a sweep, or the files of a sweep that was killed before its first job."""
    names = {entry.name for entry in run_directory.entries(directory)}
    return INDEX_FILE in names or names <= {".lock", f".{INDEX_FILE}.partial"}


def write_index(
    directory: Path, jobs: Mapping[str, Sequence[str]], batches: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Add the overrides of jobs (by directory) and the `read_batches` of a search to the index of a sweep."""
    index: dict[str, Any] = {"evorl": evorl.__version__, "jobs": {**read_index(directory), **jobs}}
    if batches := {**read_batches(directory), **batches}:
        index["batches"] = batches
    run_directory.write_json(directory, INDEX_FILE, index)


def read_batches(directory: Path) -> dict[str, int]:
    """Return the size of each batch that a search launched, by the number of evaluations that were told before it."""
    batches = _index(directory).get("batches")
    if not isinstance(batches, dict):
        return {}
    return {told: size for told, size in batches.items() if type(size) is int and size > 0}


def read_index(directory: Path) -> dict[str, list[str]]:
    """Return the overrides of each job, by directory below that of the sweep; empty without an index."""
    jobs = _index(directory).get("jobs")
    if not isinstance(jobs, dict):
        return {}
    return {
        name: [str(word) for word in words]
        for name, words in jobs.items()
        if all(map(run_directory.is_name, name.split("/"))) and isinstance(words, list)
    }


def labels(jobs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return what tells each job apart, by its directory: the overrides that not all jobs share."""
    common = set.intersection(*map(set, jobs.values())) if jobs else set()
    return {name: " ".join(word for word in words if word not in common) for name, words in jobs.items()}


def _index(directory: Path) -> dict[str, Any]:
    """The index, which is as long as the sweep; empty where it cannot be read."""
    try:
        index = run_directory.parse_json(bytes(run_directory.read(directory, INDEX_FILE, run_directory.ROWS)))
    except (OSError, ValueError):
        return {}
    return index if isinstance(index, dict) else {}


@dataclass(frozen=True, kw_only=True)
class PendingJob:
    """A job of a sweep without a run directory: not started, or failed before the start."""

    directory: Path
    words: Mapping[str, str]
    """The overrides that differ among the jobs of the sweep, and the world."""
    reason: str | None

    @property
    def state(self) -> State:
        return "not begun" if self.reason is None else "failed"


def pending_jobs(places: Iterable[Path]) -> list[PendingJob]:
    """Return the jobs without a run directory, of all sweeps at or below the given places."""
    return [job for directory in dict.fromkeys(_sweeps_below(places)) for job in _pending_in_sweep(directory)]


def searches(places: Iterable[Path]) -> list[Path]:
    """Return the searches (`SEARCH_FILE`) at or below the given places, without duplicates."""
    sweeps = [place for place in _sweeps_below(places) if run_directory.exists(place, SEARCH_FILE)]
    return list({sweep.resolve(): sweep for sweep in sweeps}.values())


class _Heldout(msgspec.Struct):
    mean: float
    low: float | None
    high: float | None
    episodes: int


class _Best(msgspec.Struct):
    """What others rely on."""

    job: str
    objective: str
    selected_by: str
    jobs: int
    candidates: list[str]
    heldout: _Heldout | None = None


def read_best(directory: Path) -> dict[str, Any] | None:
    """Return what a search wrote of its best job; None if it has named none, or if the file is damaged."""
    best_job = read_json(directory, BEST_FILE)
    try:
        best = msgspec.convert(best_job, _Best)
    except ValueError:  # msgspec's errors are ValueErrors
        return None
    return (
        best_job if best.heldout is None or (best_job and is_number(best_job.get(f"first_{best.objective}"))) else None
    )


def heldout_score(best: Mapping[str, Any]) -> str:
    """Say how good the best job of a search (`read_best`) is in episodes that had no part in choosing it."""
    heldout, name = best["heldout"], best["objective"]
    text = f"{name} {format_number(heldout['mean'])}"
    if heldout["low"] is not None and heldout["high"] is not None:
        text += f" ({format_number(heldout['low'])} to {format_number(heldout['high'])})"
    first = format_number(best[f"first_{name}"])
    return f"{text} in {heldout['episodes']} held-out episodes, {first} in its own evaluation"


def seeks_lowest(runs: Iterable[RunRecord]) -> bool:
    """Return whether all of these runs are jobs of searches for the lowest fitness, so that the lowest one is the best.

    Such a search minimises the fitness or the return, or maximises an objective in which it has a negative weight.
    """
    homes = {run.directory.absolute().parent for run in runs}
    return bool(homes) and all(_weight_of_fitness(home) < 0 for home in homes)


def stopped_early(runs: Sequence[RunRecord]) -> list[bool]:
    """Return of each run whether it is a job of a search with early stopping, which gives it a part of its budget."""
    homes = [run.directory.absolute().parent for run in runs]
    known = {home: "R" in _evolver(_sought(home)) for home in {*homes}}  # the units of a whole budget
    return [known[home] for home in homes]


def _sought(directory: Path) -> dict[str, Any] | None:
    """The settings of a search; None if the directory has none."""
    sought = (read_json(directory, SEARCH_FILE) or {}).get("hydra.sweeper")
    return sought if isinstance(sought, dict) else None


def _evolver(sought: Mapping[str, Any] | None) -> dict[str, Any]:
    evolver = (sought or {}).get("evolver")
    return evolver if isinstance(evolver, dict) else {}


def _weight_of_fitness(directory: Path) -> float:
    """The weight of fitness and return in a search's first objective, negative if that is minimised; 0 if no search."""
    sought = _sought(directory)
    if sought is None:
        return 0.0
    objectives = _evolver(sought).get("objectives")
    first = objectives[0] if isinstance(objectives, list) and objectives else "fitness"
    weights = first if isinstance(first, dict) else {first: 1.0}
    weight = sum(float(x) for name, x in weights.items() if name in ("fitness", "return") and is_number(x))
    return -weight if sought.get("direction") == "minimize" else weight


def _sweeps_below(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        for root, folders, files in os.walk(place):
            if INDEX_FILE in files:
                yield Path(root)
            shown = [name for name in folders if not name.startswith(".")]
            folders[:] = [] if ".hydra" in folders else sorted(shown, key=natural)


def _pending_in_sweep(directory: Path) -> Iterator[PendingJob]:
    jobs = {name: dict(_split_override(word) for word in words) for name, words in read_index(directory).items()}
    keys = {key for words in jobs.values() for key in words}
    varied = {key for key in keys if len({words.get(key) for words in jobs.values()}) > 1} | {"mdp"}
    for name, words in jobs.items():
        place = directory / name
        if not run_directory.exists(directory, f"{name}/.hydra/config.yaml"):
            shown = {key: value for key, value in words.items() if key in varied}
            yield PendingJob(directory=place, words=shown, reason=failure_reason(place))


def _split_override(word: str) -> tuple[str, str]:
    key, _, value = word.lstrip("+").partition("=")
    return key, value


def started_jobs(directory: Path) -> list[str]:
    """Return the jobs of a sweep that have started, in the order of its index, those of no index by number.

    One that could write nothing left the folder that Hydra made.
    """
    pending = []
    for root, folders, files in os.walk(directory):
        begun = ".hydra" in folders or not {failure.FILE_NAME, "provenance.json"}.isdisjoint(files)
        if root != str(directory) and (begun or not [*folders, *(name for name in files if name[0] != ".")]):
            pending.append(os.path.relpath(root, directory))
            folders.clear()
    places = {name: place for place, name in enumerate(read_index(directory))}
    return sorted(pending, key=lambda name: (places.get(name, len(places)), [*map(natural, name.split(os.sep))]))


def failure_reason(directory: Path) -> str | None:
    """Return the recorded reason why the last attempt at a run failed; None if there is none."""
    noted = read_json(directory, failure.FILE_NAME)
    return None if noted is None else str(noted.get("reason"))


def why_unfinished(directory: Path) -> str | None:
    """Return why a job that was run has not finished; None if it has, which its result alone shows.

    A failure is not always recorded: the disk may be full, or the process killed. A damaged result is none.
    """
    if has_result(directory):
        return None
    return failure_reason(directory) or "it has no result"


def pending_by_world(pending_jobs: Sequence[PendingJob], names: Sequence[str]) -> dict[str, list[PendingJob]]:
    """Return the jobs by world. Jobs of a world without runs are added to the first world."""
    of = [
        next((name for name in names if name.partition(" ")[0] == job.words.get("mdp")), names[0])
        for job in pending_jobs
    ]
    return {name: [job for job, world in zip(pending_jobs, of, strict=True) if world == name] for name in names}


def short_names(runs: Sequence[RunRecord | PendingJob]) -> tuple[str, dict[Path, str]]:
    """Return the common parent directory of all runs, and the path of each run below it, as they are shown."""
    above = Path(os.path.commonpath([run.directory.absolute().parent for run in runs]))
    names = {run.directory: printable(run.directory.absolute().relative_to(above)) for run in runs}
    return printable(above), names
