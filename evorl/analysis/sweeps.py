"""The directory of a sweep: which jobs it has, and what became of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import evorl
from evorl.analysis.runs import RunRecord, State, read_json
from evorl.record import failure
from evorl.util.files import write_json

INDEX = "sweep.json"
"""Makes a directory a sweep of ours: the words of each job, by its directory."""
ASKED = "search.json"
"""What was searched, where an evolver proposes the jobs."""


def is_sweep(directory: Path) -> bool:
    """Whether a directory holds a sweep, or what one leaves that was killed before its first job."""
    names = {path.name for path in directory.iterdir()}
    return INDEX in names or names <= {".lock", f".{INDEX}.partial"}


def index(directory: Path, jobs: Mapping[str, Sequence[str]]) -> None:
    """Enter the words of jobs (by their directories) beside those that the sweep has already."""
    write_json(directory / INDEX, {"evorl": evorl.__version__, "jobs": {**indexed(directory), **jobs}})


def indexed(directory: Path) -> dict[str, list[str]]:
    """The words of each job, by its directory; empty where nothing is known of them."""
    found = (read_json(directory / INDEX) or {}).get("jobs")
    return {name: [str(word) for word in words] for name, words in found.items()} if isinstance(found, dict) else {}


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A job of a sweep that is no run yet: it has not begun, or failed before it could."""

    directory: Path
    words: Mapping[str, str]
    """The keys whose values differ among the jobs of its sweep, as they were given, and the world."""
    reason: str | None

    @property
    def state(self) -> State:
        return "not begun" if self.reason is None else "failed"


def waiting(places: Iterable[Path]) -> list[Waiting]:
    """The jobs that are no runs yet, of every sweep at or below the given places."""
    return [job for directory in dict.fromkeys(_below(places)) for job in _waiting(directory)]


def searches(places: Iterable[Path]) -> list[Path]:
    """The sweeps at or below the given places whose jobs an evolver proposed, each once."""
    return list({one.resolve(): one for one in _below(places) if (one / ASKED).is_file()}.values())


def _below(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        for root, folders, files in os.walk(place):
            if INDEX in files:
                yield Path(root)
            folders[:] = [] if ".hydra" in folders else sorted(name for name in folders if not name.startswith("."))


def _waiting(directory: Path) -> Iterator[Waiting]:
    jobs = {name: dict(_pair(word) for word in words) for name, words in indexed(directory).items()}
    keys = {key for words in jobs.values() for key in words}
    told = {key for key in keys if len({words.get(key) for words in jobs.values()}) > 1} | {"mdp"}
    for name, words in jobs.items():
        place = directory / name
        if not (place / ".hydra" / "config.yaml").exists():
            shown = {key: value for key, value in words.items() if key in told}
            yield Waiting(directory=place, words=shown, reason=failed(place))


def _pair(word: str) -> tuple[str, str]:
    key, _, value = word.lstrip("+").partition("=")
    return key, value


def found(directory: Path) -> list[str]:
    """The jobs that have begun, or failed before they could, in a sweep whose jobs are not known before."""
    marks = [mark.parent.parent for mark in directory.rglob(".hydra/config.yaml")]
    marks += [mark.parent for mark in directory.rglob(failure.NAME)]
    return sorted({str(place.relative_to(directory)) for place in marks})


def failed(directory: Path) -> str | None:
    """Why the last attempt at a run failed; None where it did not."""
    if (directory / "result.json").exists():
        return None
    noted = read_json(directory / failure.NAME)
    return None if noted is None else str(noted.get("reason"))


def by_world(waiting: Sequence[Waiting], names: Sequence[str]) -> dict[str, list[Waiting]]:
    """The jobs shown with each of these worlds, those of a world without a run with the first."""
    of = [next((name for name in names if name.partition(" ")[0] == job.words.get("mdp")), names[0]) for job in waiting]
    return {name: [job for job, world in zip(waiting, of, strict=True) if world == name] for name in names}


def short_names(runs: Sequence[RunRecord | Waiting]) -> tuple[str, dict[Path, str]]:
    """Where all the runs lie, and each one's name below it."""
    above = Path(os.path.commonpath([run.directory.absolute().parent for run in runs]))
    return str(above), {run.directory: str(run.directory.absolute().relative_to(above)) for run in runs}
