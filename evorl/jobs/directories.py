"""The directories of runs and sweeps: new ones, and those where nothing has begun."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

from evorl.jobs.job import is_run
from evorl.util import run_directory
from evorl.util.errors import BadRequest
from evorl.util.names import check_names, making


def new_directory(path: str, key: str, words: Sequence[str], ours: Callable[[Path], bool] = lambda path: False) -> Path:
    """Make a new, empty directory. A default name that is taken gets a number; one named in ``words`` must be free.

    A named directory may also be `is_unstarted`, or one that ``ours`` accepts. Raises `BadRequest` at ``key``.
    """
    if not path:
        raise BadRequest("needs a directory", key)
    place = Path(path)
    with making(place, key):
        place.parent.mkdir(parents=True, exist_ok=True)
        if _is_named(key, words):
            place.mkdir(exist_ok=True)
            if not (is_unstarted(place) or ours(place)):
                raise BadRequest(f"{place} is not empty, and nothing is ever overwritten", key)
            return place
        return _next_free_name(place)


def place_of(path: str, key: str, words: Sequence[str]) -> Path:
    """Where `new_directory` makes this directory, unless another process takes the name first.

    Raises `BadRequest` at ``key`` where no directory can be.
    """
    place = Path(path)
    check_names(place, "the directory", key)
    if os.path.lexists(place) and not os.path.isdir(place):
        raise BadRequest(f"{place} is no directory", key)
    return place if _is_named(key, words) else next(name for name in _names(place) if not name.exists())


def _is_named(key: str, words: Sequence[str]) -> bool:
    return any(word.startswith(f"{key}=") for word in words)


def _next_free_name(place: Path) -> Path:
    for name in _names(place):
        with suppress(FileExistsError):
            name.mkdir()  # atomic: only one process gets it
            return name
    raise AssertionError


def _names(place: Path) -> Iterator[Path]:
    return chain([place], (place.with_name(f"{place.name}-{number}") for number in count(1)))


def is_unstarted(directory: Path) -> bool:
    """Return whether a directory is empty, or left by a run that was killed before its config was written."""
    names = {entry.name for entry in run_directory.entries(directory)}
    return not names or (".lock" in names and names <= _BEFORE and not is_run(directory))


_BEFORE = {".lock", ".hydra", "provenance.json", ".provenance.json.partial"}
