"""Reader of run directories: finished, stopped or still running."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evorl.analysis.statistics import Floats
from evorl.record import failure
from evorl.record.lock import is_locked
from evorl.record.older_configs import with_present_keys
from evorl.record.provenance import FILE_NAME as PROVENANCE
from evorl.record.provenance import POLICY_ONLY
from evorl.record.result import FILE_NAME as RESULT
from evorl.record.result import read_result
from evorl.util import run_directory
from evorl.util.errors import BadRequest, wrong_data
from evorl.util.names import check_name, readable

MOST = 1e150
"""Largest number that counts as finite: squares of it are finite, too."""
MOST_STEPS = 1 << 53
LONGEST_NAME = 200
"""Most letters of the name of a metric or a key."""
_log = logging.getLogger("evorl")
State = Literal["finished", "running", "interrupted", "failed", "not begun"]


@dataclass(frozen=True, eq=False)
class Series:
    """One metric of one run: K finite values in the order written, with their environment steps and seconds."""

    steps: Floats
    seconds: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunRecord:
    """The content of one run directory."""

    directory: Path
    config: Mapping[str, Any]
    """The composed config, flattened to dotted keys."""
    home: Path | None = None
    """Where the run was begun, which it may have been moved from."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """The chosen file of each config group (``mdp``: ``pong``); empty if Hydra did not record it."""
    words: Sequence[str] = ()
    """Those of the command line that began it, as far as Hydra recorded them."""
    series: Mapping[str, Series] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    state: State = "interrupted"
    reason: str = ""
    """Why the run failed."""
    damaged: int = 0
    """Number of complete lines of metrics.jsonl that are not valid."""
    notes: Sequence[str] = ()
    """What is damaged beside these lines, and left out."""
    steps: float = 0.0
    seconds: float = 0.0

    @property
    def seed(self) -> Any:
        return self.config.get("seed")

    @property
    def has_learner(self) -> bool:
        """Whether its ``rl`` has any effect: a problem is not played by a learner."""
        return self.choices.get("mdp") != "problem"

    @property
    def tells_nothing(self) -> bool:
        """Whether it failed before it wrote any value."""
        return self.state == "failed" and not self.series

    def last(self, metric: str) -> float | None:
        """Return the newest value of a metric; None if it was never written."""
        series = self.series.get(metric)
        return float(series.values[-1]) if series else None


def find_runs(places: Sequence[Path]) -> list[Path]:
    """Return the run directories at or below the given places, without duplicates, in a stable order.

    Raises `BadRequest` if there is none.
    """
    directories = {directory.resolve(): directory for place in places for directory in _runs_below(place)}
    if not directories:
        if only := next((place for place in places if run_directory.exists(place, POLICY_ONLY)), None):
            raise BadRequest(f"{only} holds only a policy, and no records to report")
        names = ", ".join(map(str, places))
        raise BadRequest(f"no run in {names or 'no directory'}: a run holds .hydra/config.yaml and records")
    return list(directories.values())


def read_run(directory: Path) -> RunRecord:
    """Read one run directory. A run without a result is running if a process holds its lock.

    Raises `BadRequest` if the config cannot be read, or the directory's name is not UTF-8.
    """
    check_name(str(directory))
    lines, damaged = _read_lines(directory)
    series = _gather(lines)
    documents, notes = _read_documents(directory)
    result = documents.get(RESULT)
    steps = max((float(line["step"]) for line in lines), default=0.0)
    if result is not None and _number(result.get("steps"), 0.0) < steps:
        result = None  # written by an earlier attempt: the run was resumed with a larger budget
    seconds = max((float(line["time"]) for line in lines), default=0.0)
    state, reason = _state(directory, result)
    hydra = _read_hydra(directory)
    home = _home(hydra)
    return RunRecord(
        directory=directory,
        home=None if home is None else Path(home),
        config=_read_config(directory),
        choices=_choices(hydra),
        words=_words(hydra),
        series=series,
        result=result,
        provenance=documents.get(PROVENANCE, {}),
        notes=notes,
        state=state,
        reason=reason,
        damaged=damaged,
        steps=_number((result or {}).get("steps"), steps),
        seconds=_number((result or {}).get("seconds"), seconds),
    )


def read_runs(directories: Sequence[Path]) -> tuple[list[RunRecord], list[str]]:
    """Return the readable runs and a note on each other one. Raises `BadRequest` or OSError if none is readable."""
    runs, left_out = [], []
    for directory in directories:
        try:
            runs.append(_read_whole(directory))
        except (BadRequest, OSError) as error:
            if directory == directories[-1] and not runs:
                raise
            left_out.append(f"left out: {readable(str(directory))} ({str(error).replace(f'{directory}/', '')})")
        else:
            left_out += [f"left out: {note}" for note in runs[-1].notes]
    return runs, left_out


def _read_whole(directory: Path) -> RunRecord:
    """Read a run. Raises `BadRequest`, whatever is wrong with it."""
    with wrong_data(lambda why: BadRequest(f"cannot read {directory}: {why}")):
        return read_run(directory)


def _read_documents(directory: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return result and provenance of a run, by the names of their files, and a note on each that is damaged."""
    documents, notes = dict[str, dict[str, Any]](), list[str]()
    for name in (RESULT, PROVENANCE):
        try:
            document = read_result(directory) if name == RESULT else run_directory.read_json(directory, name)
            if document is not None and not isinstance(document, dict):
                raise ValueError("it holds no keys")
            documents |= {} if document is None else {name: document}
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            notes.append(f"{directory / name} ({str(error).replace(f'{directory / name}: ', '')})")
    return documents, notes


def _state(directory: Path, result: Mapping[str, Any] | None) -> tuple[State, str]:
    if result is not None:
        return "finished", ""
    if is_locked(directory):
        return "running", ""
    noted = read_json(directory, failure.FILE_NAME)
    return ("interrupted", "") if noted is None else ("failed", str(noted.get("reason", "")))


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to dotted keys; an empty mapping is kept as a value."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            leaves |= flatten(value, f"{name}.")
        else:
            leaves[name] = value
    return leaves


def _runs_below(place: Path) -> Iterator[Path]:
    for root, folders, _ in os.walk(place):
        if os.path.lexists(Path(root) / ".hydra" / "config.yaml"):  # a link is reported when it is read
            if not run_directory.exists(Path(root), POLICY_ONLY):  # a kept policy has no records
                yield Path(root)
            folders.clear()  # do not search inside a run
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=natural)


def natural(name: str) -> tuple[int, str]:
    """What folders are sorted by; jobs of sweeps are numbered, and 2 comes before 10."""
    return (int(name), "") if name.isdecimal() else (-1, name)


def _read_lines(directory: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the valid metric lines and the number of damaged ones; an incomplete last line is ignored."""
    if not run_directory.exists_at_all(directory, "metrics.jsonl"):
        return [], 0
    parsed = [_parse(line) for line in run_directory.lines(directory, "metrics.jsonl") if line.strip()]
    good = [line for line in parsed if line is not None]
    return good, len(parsed) - len(good)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = run_directory.parse_json(line)
    except ValueError:
        return None
    stamped = isinstance(row, dict) and is_number(row.get("step")) and is_number(row.get("time"))
    sound = stamped and 0 <= row["step"] <= MOST_STEPS and all(len(name) <= LONGEST_NAME for name in row)
    return row if sound else None


def _gather(lines: list[dict[str, Any]]) -> dict[str, Series]:
    """The series of each metric. Lines of the same names become columns at once, which is far faster than by value."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, line in enumerate(lines):
        alike.setdefault(tuple(line), []).append(number)
    parts: dict[str, list[Floats]] = {}
    for names, numbers in alike.items():
        columns = dict(zip(names, zip(*(lines[number].values() for number in numbers), strict=True), strict=True))
        stamps = np.array([numbers, columns.pop("step"), columns.pop("time")], np.float64)
        for name, column in columns.items():
            values = _numbers(column)
            known = np.isfinite(values)
            if known.any():
                parts.setdefault(name, []).append(np.vstack([stamps, values])[:, known])
    return {name: Series(*_in_order(np.hstack(tables))[1:]) for name, tables in parts.items()}


def _numbers(column: Sequence[Any]) -> Floats:
    """The values of a column; NaN or infinite where a value is no finite number."""
    if {*map(type, column)} <= {int, float}:  # to look at each value is far slower
        with suppress(OverflowError):  # of an integer
            values = np.array(column, np.float64)
            return np.where(np.abs(values) <= MOST, values, math.nan)
    return np.array([value if is_number(value) else math.nan for value in column], np.float64)


def _in_order(table: Floats) -> Floats:
    """The columns of a table by its first row, the numbers of lines."""
    return np.asarray(table[:, np.argsort(table[0], kind="stable")])


def further_lines(directory: Path, name: str) -> Iterator[bytes]:
    """Yield the lines that hold anything of another file of a run, if it has one; none, and a warning, if it cannot be
    read: the report goes on without it."""
    try:
        yield from (line for line in run_directory.lines(directory, name) if line.strip())
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("left out: %s", error)


def read_json(directory: Path, name: str) -> dict[str, Any] | None:
    """Return the JSON object in a file of a directory; None if it cannot be read."""
    try:
        content = run_directory.read_json(directory, name)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def home_of(directory: Path) -> str | None:
    """Return the absolute path at which a run was begun, which it may have been moved from; None if it is not known."""
    try:
        return _home(_read_hydra(directory))
    except BadRequest:
        return None


def _home(hydra: Mapping[str, Any]) -> str | None:
    home = hydra.get("hydra.runtime.output_dir")
    return home if isinstance(home, str) and os.path.isabs(home) else None


def _read_yaml(directory: Path, name: str) -> Mapping[str, Any]:
    try:
        content = run_directory.read_yaml(directory, name)
    except BadRequest:
        raise
    except (OSError, ValueError) as error:
        raise BadRequest(f"cannot read {directory / name}: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict):
        raise BadRequest(f"cannot read {directory / name}: not a mapping of keys")
    return content


def _read_config(directory: Path) -> dict[str, Any]:
    """The flattened config of a run. Raises `BadRequest` for one that no run has."""
    written = flatten(with_present_keys(_read_yaml(directory, ".hydra/config.yaml")))
    config = {key: _whole(value) for key, value in written.items()}
    if not isinstance(config.get("seed"), int | None) or any(len(name) > LONGEST_NAME for name in config):
        raise BadRequest(f"cannot read {directory / '.hydra' / 'config.yaml'}: it is no config of a run")
    return config


def _whole(value: Any) -> Any:
    """A value of a config with whole floats as integers, also in lists: 1 and 1.0 are one value."""
    if isinstance(value, list):
        return [_whole(item) for item in value]
    exact = isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53  # above, its last digits are noise
    return int(value) if exact else value


def _read_hydra(directory: Path) -> dict[str, Any]:
    """Return Hydra's own config of a run, flattened; empty if it was not recorded."""
    name = ".hydra/hydra.yaml"
    return flatten(_read_yaml(directory, name)) if run_directory.exists_at_all(directory, name) else {}


def _choices(hydra: Mapping[str, Any]) -> dict[str, str]:
    """Return the chosen file of each config group as recorded by Hydra, without Hydra's own groups."""
    prefix = "hydra.runtime.choices."
    chosen = {key.removeprefix(prefix): value for key, value in hydra.items() if key.startswith(prefix)}
    named = {group: str(value) for group, value in chosen.items() if value is not None}
    return {group: choice for group, choice in named.items() if not group.startswith("hydra/")}


def _words(hydra: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of the command line as recorded by Hydra, without those for Hydra itself."""
    words = hydra.get("hydra.overrides.task")
    return tuple(map(str, words)) if isinstance(words, list) else ()


def is_number(value: Any) -> bool:
    """Return whether a value read from a file is a finite number (booleans are not numbers)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST


def _number(value: Any, default: float) -> float:
    return float(value) if is_number(value) else default
