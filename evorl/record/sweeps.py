"""The directory of a sweep: which jobs it has, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import evorl
from evorl.record import failure
from evorl.record.files import write_json
from evorl.record.runs import read_json

INDEX = "sweep.json"
"""Makes a directory a sweep of ours: the words of each job, by its directory."""


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
