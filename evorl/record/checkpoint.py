"""Checkpoints: one directory each, complete or absent, verified by checksum on every read.

``checkpoints/<step>/`` holds

* ``tensors.safetensors``: every array of the state, named by its keys joined with "/";
* ``state.json``: the rest of the state, with null in place of arrays;
* ``rows-*.safetensors``: `AppendedRows` of the state, in segments that are written once. A later checkpoint has hard
  links to the segments that it needs, so it writes only new rows (`evorl.record.segments`);
* ``manifest.json``: the SHA-256 and size of all of them, the step, and a checksum of itself.

A checkpoint is written under a temporary name, flushed to stable storage and renamed, so that a reader finds the
complete old state or the complete new one (`evorl.record.checkpoint_folders`). Types are kept: NumPy arrays are loaded
as NumPy arrays, torch tensors as torch tensors (on the CPU).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

import evorl
from evorl.record import checkpoint_folders as folders
from evorl.record import tensors
from evorl.record.checkpoint_folders import HOME
from evorl.record.checkpoint_folders import steps as steps
from evorl.record.checkpoint_folders import tell_of_links as tell_of_links
from evorl.record.segments import Segment, Segments
from evorl.record.state_tree import insert, require_lists, split
from evorl.util import run_directory
from evorl.util.errors import BadRequest, wrong_data
from evorl.util.types import AppendedRows, StateDict, Steps

SCHEMA = 1
MAX_DIGITS = 40
"""Of an integer in a state: the words of a generator have 128 bits."""
_TENSORS, _STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_AHEAD = f"{HOME}/.ahead"
_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
_log = logging.getLogger("evorl")


class DamagedCheckpoint(BadRequest):
    """A checkpoint differs from what was written; the message names the file."""


# ------------------------------------------------------------------ saving


def save(
    run_dir: Path,
    step: int,
    state: StateDict,
    keep: int,
    best: int | None = None,
    *,
    segments: Segments | None = None,
) -> Path:
    """Save a state as the checkpoint of a step, in place of one that it has; return its directory.

    ``segments`` are those that may be linked; once the checkpoint is written they are its own.
    Once it is complete, older checkpoints are removed, except the ``keep`` newest and ``best``. Raises OSError (a full
    disk) with the earlier checkpoints intact, and TypeError for a state that cannot be saved.
    """
    if run_directory.make_folder(run_dir, HOME):
        run_directory.sync(run_dir)
    folders.tidy(run_dir)
    _write(run_dir, step, state, segments or Segments(run_dir, _AHEAD, {}))
    run_directory.replace(run_dir, f"{HOME}/latest", f"{step}\n".encode())
    folders.prune(run_dir, step, keep, best)
    return run_dir / HOME / str(step)


def segments_of(run_dir: Path, step: int | None = None) -> Segments:
    """Return the segments that a run writes on: those of the checkpoint of ``step``, or none yet if ``step`` is None.

    What a killed process left is put in order, and segments that it wrote ahead are removed.
    """
    if run_directory.is_folder(run_dir, HOME):
        folders.tidy(run_dir)
    segments = Segments(run_dir, _AHEAD, {} if step is None else _segments(run_dir, step))
    segments.remove_ahead()
    return segments


def _segments(run_dir: Path, step: int) -> dict[str, list[Segment]]:
    """The segments of a checkpoint by the names of their rows; none if it is damaged."""
    place = f"{HOME}/{step}"
    with suppress(DamagedCheckpoint), damage(run_dir / place):
        known = _read_manifest(run_dir, place)["files"]
        rows = _read_state(run_dir, place, known).get("rows", {})
        return {
            name: [Segment(first, end, f"{place}/{file}", **known[file]) for first, end, file in row["segments"]]
            for name, row in rows.items()
        }
    return {}


def write_ahead(segments: Segments, state: StateDict) -> None:
    """Write what fills segments of the rows in a part of the state, so that the next checkpoint has little to write.

    Raises OSError (a full disk).
    """
    appended: dict[str, AppendedRows] = {}
    split(state, (), {}, appended)
    segments.write_ahead(appended)


def _write(run_dir: Path, step: int, state: StateDict, segments: Segments) -> None:
    temporary, target = f"{HOME}/.{step}.partial", f"{HOME}/{step}"
    arrays: dict[str, Any] = {}
    appended: dict[str, AppendedRows] = {}
    rest = split(state, (), arrays, appended)
    torch = {
        name: str(array.dtype).removeprefix("torch.") for name, array in arrays.items() if tensors.is_tensor(array)
    }
    try:
        run_directory.make_folder(run_dir, temporary)
        written = segments.write(temporary, appended)
        rows = {
            name: {"first": appended[name].first, "segments": [[x.first, x.end, x.name] for x in parts]}
            for name, parts in written.items()
        }
        entries = {x.name: (x.size, x.sha256) for parts in written.values() for x in parts}
        document = json.dumps({"torch": torch, "state": rest} | ({"rows": rows} if rows else {})).encode()
        entries |= {
            _TENSORS: run_directory.write(run_dir, f"{temporary}/{_TENSORS}", tensors.encode(arrays)),
            _STATE: run_directory.write(run_dir, f"{temporary}/{_STATE}", [document]),
        }
        run_directory.write(run_dir, f"{temporary}/{MANIFEST}", [_manifest(step, entries)])
        run_directory.sync(run_dir, temporary)
        folders.put(run_dir, temporary, step)
    except BaseException:
        with suppress(OSError):
            run_directory.remove(run_dir, temporary)
        raise
    segments.known = {name: [x._replace(file=f"{target}/{x.name}") for x in parts] for name, parts in written.items()}
    segments.remove_ahead()


def _manifest(step: int, entries: dict[str, tuple[int, str]]) -> bytes:
    content = {
        "schema": SCHEMA,
        "evorl": evorl.__version__,
        "step": step,
        "files": {name: {"size": size, "sha256": digest} for name, (size, digest) in entries.items()},
    }
    return _with_checksum(content)


def _with_checksum(content: dict[str, Any]) -> bytes:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**content, "sha256": digest}, indent=2) + "\n").encode()


# ------------------------------------------------------------------ loading


def best_step(run: StateDict) -> int | None:
    """Return the step of the checkpoint that holds the best policy, by the newest state of a run; None if none does.

    Of one learner and of a shared critic it is that of the best evaluation. The best individual of a population
    (``leader``) is in every checkpoint since its evaluation, so in the newest.
    """
    if run["best"] is None:
        return None
    return int(run["steps"] if "leader" in run else run["best"][1])


def digest(run_dir: Path, step: int) -> str | None:
    """Return the checksum of the manifest of a checkpoint, which names all its content; None if it cannot be read."""
    try:
        return str(_read_manifest(run_dir, folders.place(run_dir, step))["sha256"])
    except (DamagedCheckpoint, BadRequest, OSError, KeyError):
        return None


def newest(
    run_dir: Path, rows: bool = True, take: Callable[[StateDict], StateDict] | None = None
) -> tuple[Path, StateDict] | None:
    """Return the newest complete checkpoint and its state (`load`); None if no checkpoint was saved.

    Damaged checkpoints are skipped with a warning. ``take`` is called with the state and returns it, or what is made of
    it; whatever data of the wrong kind raises there is damage, too. Raises `DamagedCheckpoint` if all are damaged.
    """
    damaged: list[tuple[int, DamagedCheckpoint]] = []
    for step in reversed(steps(run_dir)):
        path = run_dir / folders.place(run_dir, step)
        try:
            state = load(path, rows)
            if take is not None:
                with damage(path):
                    state = take(state)
        except DamagedCheckpoint as error:
            damaged.append((step, error))
            continue
        for other, why in damaged:
            _log.warning("checkpoint %d is damaged (%s); falling back to the previous one", other, why)
        return path, state
    if damaged:
        raise DamagedCheckpoint(f"no checkpoint in {run_dir / HOME} is complete ({damaged[0][1]})") from damaged[0][1]
    return None


class _RunState(msgspec.Struct):
    """What others than the run itself read of its state."""

    steps: Steps
    best: tuple[float, int] | None
    learner: dict[str, Any] | None


def run_state(run_dir: Path, which: int | Literal["latest"] = "latest") -> tuple[Path, StateDict]:
    """Return a checkpoint, and the state of its run without rows: that of a step, or the newest sound one.

    Raises `BadRequest` if there is none.
    """

    def checked(state: StateDict) -> StateDict:
        msgspec.convert(state["run"], _RunState)
        run: StateDict = state["run"]
        return run

    if which == "latest":
        newest_kept = newest(run_dir, rows=False, take=checked)
        if newest_kept is None:
            raise BadRequest(f"{run_dir} holds no checkpoint")
        return newest_kept
    if which not in steps(run_dir):
        raise BadRequest(f"{run_dir} holds no checkpoint of step {which} any more")
    path = run_dir / folders.place(run_dir, which)
    state = load(path, rows=False)
    with damage(path):
        return path, checked(state)


@contextmanager
def damage(path: Path) -> Iterator[None]:
    """Raise `DamagedCheckpoint`, with the cause, for what data of the wrong kind raises in the body.

    What a world or another process reports passes, and so does a request that cannot be met.
    """
    with wrong_data(lambda why: DamagedCheckpoint(f"{path}: {why}")):
        yield


def load(path: Path, rows: bool = True) -> StateDict:
    """Return the state of a checkpoint directory. Raises `DamagedCheckpoint` with the name of a damaged file.

    ``rows`` False reads no `AppendedRows`, which may take gigabytes: None is in their place.
    """
    run_dir, place = path.parent.parent, f"{HOME}/{path.name}"
    with damage(path):
        manifest = _read_manifest(run_dir, place)
        known = manifest["files"]
        arrays: dict[str, Any] = {**tensors.decode(_read_verified(run_dir, f"{place}/{_TENSORS}", known[_TENSORS]))}
        document = _read_state(run_dir, place, known)
        for name, dtype in document["torch"].items():
            arrays[name] = tensors.to_torch(arrays[name], dtype)
        state: StateDict = document["state"]
        require_lists(state)
        for name, array in arrays.items():
            insert(state, name, array)
        if rows:
            for name, segments in document.get("rows", {}).items():
                insert(state, name, _read_rows(run_dir, place, known, segments))
        return state


def _read_state(run_dir: Path, place: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return the document ``state.json``. Raises ValueError for an integer that no computation could use."""

    def integer(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise ValueError(f"an integer of {len(digits)} digits")
        return int(digits)

    document: dict[str, Any] = json.loads(
        _read_verified(run_dir, f"{place}/{_STATE}", known[_STATE]), parse_int=integer
    )
    return document


def _read_rows(run_dir: Path, place: str, known: dict[str, Any], index: dict[str, Any]) -> dict[str, Any]:
    """Return `AppendedRows.whole` from its segments. Raises ValueError if they do not follow one another."""
    first, segments = index["first"], index["segments"]
    if type(first) is not int:
        raise TypeError(f"{first!r:.40} is no number of a row")
    rows: dict[str, Any] = {}
    for number, (begin, end, file) in enumerate(segments):  # one at a time in memory
        part = tensors.decode(_read_verified(run_dir, f"{place}/{file}", known[file]))
        fits = begin == segments[number - 1][1] if number else begin <= first < end
        if not fits or any(len(x) != end - begin for x in part.values()):
            raise ValueError(f"{file} is no segment of rows {begin} to {end}")
        low = max(begin, first)
        for name, x in part.items():
            if name not in rows:
                rows[name] = np.empty((segments[-1][1] - first, *x.shape[1:]), x.dtype)
            rows[name][low - first : end - first] = x[low - begin :]
    return {"first": first, "rows": rows}


def _read_manifest(run_dir: Path, place: str) -> dict[str, Any]:
    file = run_dir / place / MANIFEST
    content = _read(run_dir, f"{place}/{MANIFEST}", run_directory.DOCUMENT)
    try:
        manifest: dict[str, Any] = json.loads(content)
        sealed = _with_checksum({key: value for key, value in manifest.items() if key != "sha256"})
    except (ValueError, AttributeError, RecursionError) as error:
        raise DamagedCheckpoint(f"{file}: {error}") from None
    if sealed != content:
        raise DamagedCheckpoint(f"{file}: its checksum does not match")
    if manifest["schema"] != SCHEMA:
        raise BadRequest(
            f"{file.parent} was written by evorl {manifest['evorl']}, in a format that this version cannot read",
            "resume",
        )
    if file.parent.name not in (f"{manifest['step']}", f".{manifest['step']}.replaced"):
        raise DamagedCheckpoint(f"{file}: it belongs to step {manifest['step']}")
    return manifest


def _read_verified(run_dir: Path, name: str, entry: dict[str, Any]) -> bytearray:
    content = _read(run_dir, name, min(entry["size"], _MEMORY))
    if len(content) != entry["size"]:
        raise DamagedCheckpoint(f"{run_dir / name}: {len(content)} bytes instead of {entry['size']}")
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise DamagedCheckpoint(f"{run_dir / name}: its checksum does not match")
    return content


def _read(run_dir: Path, name: str, most: int) -> bytearray:
    try:
        return run_directory.read(run_dir, name, most)
    except OSError as error:
        raise DamagedCheckpoint(f"{run_dir / name}: {error.strerror}") from None
