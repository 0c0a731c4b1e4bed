"""Checkpoints: one directory each, complete or absent, verified by checksum on every read.

``checkpoints/<step>/`` holds

* ``tensors.safetensors``: every array of the state, named by its keys joined with "/";
* ``state.json``: the rest of the state, with null in place of arrays;
* ``rows-*.safetensors``: `AppendedRows` of the state, in segments that are written once. A later checkpoint has hard
  links to the segments that it needs, so it writes only new rows (`evorl.record.segments`);
* ``manifest.json``: the SHA-256 and size of all of them, the step, and a checksum of itself.

A checkpoint is written under a temporary name, flushed to stable storage and renamed, so that a reader finds the
complete old state or the complete new one. Types are kept: NumPy arrays are loaded as NumPy arrays, torch tensors as
torch tensors (on the CPU).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import evorl
from evorl.record import tensors
from evorl.record.segments import Segment, Segments
from evorl.util import files
from evorl.util.errors import BadRequest
from evorl.util.types import AppendedRows, StateDict

SCHEMA = 1
_TENSORS, _STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_AHEAD = ".ahead"
_log = logging.getLogger("evorl")


class DamagedCheckpoint(BadRequest):
    """A checkpoint differs from what was written; the message names the file."""


class RunLocked(BadRequest):
    """Another process holds the lock of the run directory."""


# ------------------------------------------------------------------ saving


def save(
    run_dir: Path,
    step: int,
    state: StateDict,
    keep: int,
    best: int | None = None,
    *,
    overwrite: bool = False,
    segments: Segments | None = None,
) -> Path:
    """Save a state as the checkpoint of a step; return its directory.

    ``segments`` are those that may be linked; once the checkpoint is written they are its own.
    Once it is complete, older checkpoints are removed, except the ``keep`` newest and ``best``.
    A complete checkpoint of this step is kept as it is unless ``overwrite`` is set. Between the two renames of an
    overwrite the previous step is the newest checkpoint. Raises OSError (a full disk) with the earlier checkpoints
    intact, and TypeError for a state that cannot be saved.
    """
    home = run_dir / "checkpoints"
    if not home.exists():
        home.mkdir()
        files.sync(run_dir)
    for leftover in home.glob(".*"):
        if leftover.name != _AHEAD:
            _remove(leftover)
    target, shared = home / str(step), segments or Segments(home / _AHEAD, {})
    if overwrite or not _is_complete(target):
        _write(home / f".{step}.partial", target, step, state, shared)
    files.replace(home / "latest", f"{step}\n".encode())
    _prune(home, step, keep, best)
    return target


def segments_of(run_dir: Path, step: int | None = None) -> Segments:
    """Return the segments of the checkpoint of a step, for a run that continues from it; None for a new run.

    Segments that a killed process wrote ahead are removed.
    """
    home = run_dir / "checkpoints"
    found = Segments(home / _AHEAD, {} if step is None else _segments(home / str(step)))
    found.remove_ahead()
    return found


def _segments(path: Path) -> dict[str, list[Segment]]:
    """The segments of a checkpoint by the names of their rows; none if it is damaged."""
    with suppress(DamagedCheckpoint):
        known = _read_manifest(path)["files"]
        rows = json.loads(_read_verified(path / _STATE, known[_STATE])).get("rows", {})
        return {
            name: [Segment(first, end, path / file, **known[file]) for first, end, file in one["segments"]]
            for name, one in rows.items()
        }
    return {}


def write_ahead(segments: Segments, state: StateDict) -> None:
    """Write what fills segments of the rows in a part of the state, so that the next checkpoint has little to write.

    Raises OSError (a full disk).
    """
    appended: dict[str, AppendedRows] = {}
    _split(state, (), {}, appended)
    segments.write_ahead(appended)


def _write(temporary: Path, target: Path, step: int, state: StateDict, segments: Segments) -> None:
    arrays: dict[str, Any] = {}
    appended: dict[str, AppendedRows] = {}
    rest = _split(state, (), arrays, appended)
    torch = {
        name: str(array.dtype).removeprefix("torch.") for name, array in arrays.items() if tensors.is_tensor(array)
    }
    try:
        temporary.mkdir()
        written = segments.write(temporary, appended)
        rows = {
            name: {"first": appended[name].first, "segments": [[x.first, x.end, x.file.name] for x in parts]}
            for name, parts in written.items()
        }
        entries = {x.file.name: (x.size, x.sha256) for parts in written.values() for x in parts}
        document = json.dumps({"torch": torch, "state": rest} | ({"rows": rows} if rows else {})).encode()
        entries |= {
            _TENSORS: files.write(temporary / _TENSORS, tensors.encode(arrays)),
            _STATE: files.write(temporary / _STATE, [document]),
        }
        files.write(temporary / MANIFEST, [_manifest(step, entries)])
        files.sync(temporary)
        _discard(target)
        os.rename(temporary, target)
        files.sync(target.parent)
    except BaseException:
        with suppress(OSError):
            _remove(temporary)
        raise
    segments.known = {name: [x._replace(file=target / x.file.name) for x in parts] for name, parts in written.items()}
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


def _split(node: Any, path: tuple[str, ...], arrays: dict[str, Any], appended: dict[str, AppendedRows]) -> Any:
    """Return the state with null in place of arrays and rows, which go into ``arrays`` and ``appended`` by name."""
    if isinstance(node, AppendedRows):
        appended[_array_name(path)] = node
        return None
    if isinstance(node, np.ndarray) or tensors.is_tensor(node):
        arrays[_array_name(path)] = node
        return None
    if isinstance(node, np.generic):
        return node.item()
    if isinstance(node, dict) and all(isinstance(key, str) for key in node):
        return {key: _split(child, (*path, key), arrays, appended) for key, child in node.items()}
    if isinstance(node, list):
        return [_to_json(child, path) for child in node]
    return _to_json(node, path)


def _to_json(node: Any, path: tuple[str, ...]) -> Any:
    """Return a JSON scalar or nested lists of scalars. Raises TypeError for anything else."""
    if isinstance(node, list):
        return [_to_json(child, path) for child in node]
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise TypeError(f"{_array_name(path)}: a {type(node).__name__} cannot be saved")


def _array_name(path: tuple[str, ...]) -> str:
    """Return the keys joined by "/"; as in a JSON pointer, "~" and "/" within a key become "~0" and "~1"."""
    return "/".join(word.replace("~", "~0").replace("/", "~1") for word in path)


def _prune(home: Path, step: int, keep: int, best: int | None) -> None:
    # A checkpoint beyond this step is damaged, else the run would have resumed there: it does not count as kept.
    reached = [old for old in steps(home.parent) if old <= step]
    for old in reached[:-keep]:
        if old != best:
            _discard(home / str(old))


def _discard(directory: Path) -> None:
    """Remove a checkpoint. It is renamed first, so an interruption leaves no partial checkpoint."""
    if directory.exists():
        removed = directory.with_name(f".{directory.name}.removed")
        os.rename(directory, removed)
        _remove(removed)


def _remove(path: Path) -> None:
    if path.is_dir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _is_complete(directory: Path) -> bool:
    with suppress(DamagedCheckpoint):
        load(directory)
        return True
    return False


# ------------------------------------------------------------------ loading


def steps(run_dir: Path) -> list[int]:
    """Return the steps that have a checkpoint directory, ascending. The checkpoints are not verified."""
    home = run_dir / "checkpoints"
    return sorted(int(path.name) for path in home.glob("[0-9]*") if path.name.isdecimal() and path.is_dir())


def newest(run_dir: Path, rows: bool = True) -> tuple[Path, StateDict] | None:
    """Return the newest complete checkpoint and its state (`load`); None if no checkpoint was saved.

    Damaged checkpoints are skipped with a warning. Raises `DamagedCheckpoint` if all of them are damaged.
    """
    damaged: list[tuple[int, DamagedCheckpoint]] = []
    for step in reversed(steps(run_dir)):
        path = run_dir / "checkpoints" / str(step)
        try:
            state = load(path, rows)
        except DamagedCheckpoint as error:
            damaged.append((step, error))
            continue
        for other, why in damaged:
            _log.warning("checkpoint %d is damaged (%s); falling back to the previous one", other, why)
        return path, state
    if damaged:
        raise DamagedCheckpoint(f"no checkpoint in {run_dir / 'checkpoints'} is complete ({damaged[0][1]})")
    return None


def load(path: Path, rows: bool = True) -> StateDict:
    """Return the state of a checkpoint directory. Raises `DamagedCheckpoint` with the name of a damaged file.

    ``rows`` False reads no `AppendedRows`, which may take gigabytes: None is in their place.
    """
    manifest = _read_manifest(path)
    arrays: dict[str, Any] = {**tensors.decode(_read_verified(path / _TENSORS, manifest["files"][_TENSORS]))}
    document = json.loads(_read_verified(path / _STATE, manifest["files"][_STATE]))
    for name, dtype in document["torch"].items():
        arrays[name] = tensors.to_torch(arrays[name], dtype)
    state: StateDict = document["state"]
    for name, array in arrays.items():
        _insert(state, name, array)
    if rows:
        for name, found in document.get("rows", {}).items():
            _insert(state, name, _read_rows(path, manifest, found))
    return state


def _read_rows(path: Path, manifest: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return `AppendedRows.whole` from its segments."""
    first, segments = found["first"], found["segments"]
    rows: dict[str, Any] = {}
    for begin, end, file in segments:  # one at a time in memory
        part = tensors.decode(_read_verified(path / file, manifest["files"][file]))
        low = max(begin, first)
        for name, x in part.items():
            if name not in rows:
                rows[name] = np.empty((segments[-1][1] - first, *x.shape[1:]), x.dtype)
            rows[name][low - first : end - first] = x[low - begin :]
    return {"first": first, "rows": rows}


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    content = _read(file)
    try:
        manifest: dict[str, Any] = json.loads(content)
        sealed = _with_checksum({key: value for key, value in manifest.items() if key != "sha256"})
    except (ValueError, AttributeError) as error:
        raise DamagedCheckpoint(f"{file}: {error}") from None
    if sealed != content:
        raise DamagedCheckpoint(f"{file}: its checksum does not match")
    if manifest["schema"] != SCHEMA:
        raise BadRequest(
            f"{path} was written by evorl {manifest['evorl']}, in a format that this version cannot read", "resume"
        )
    if str(manifest["step"]) != path.name:
        raise DamagedCheckpoint(f"{file}: it belongs to step {manifest['step']}")
    return manifest


def _read_verified(file: Path, entry: dict[str, Any]) -> bytearray:
    content = _read(file)
    if len(content) != entry["size"]:
        raise DamagedCheckpoint(f"{file}: {len(content)} bytes instead of {entry['size']}")
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise DamagedCheckpoint(f"{file}: its checksum does not match")
    return content


def _read(file: Path) -> bytearray:
    try:
        with file.open("rb") as stream:
            content = bytearray(os.fstat(stream.fileno()).st_size)
            del content[stream.readinto(content) :]
            return content
    except OSError as error:
        raise DamagedCheckpoint(f"{file}: {error.strerror}") from None


def _insert(state: StateDict, name: str, array: Any) -> None:
    *parents, last = (word.replace("~1", "/").replace("~0", "~") for word in name.split("/"))
    for word in parents:
        state = state[word]
    state[last] = array


# ------------------------------------------------------------------ one writer


@contextmanager
def lock(run_dir: Path, key: str = "resume") -> Iterator[None]:
    """Lock a run directory for this process. Raises `RunLocked` (at config key ``key``) if another process holds it.

    The operating system releases the lock when the process ends, however it ends.
    """
    import fcntl

    descriptor = os.open(run_dir / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunLocked(f"another process is writing {run_dir}", key) from None
        except OSError as error:  # some network file systems do not support locks
            _log.warning("%s cannot be locked (%s): make sure that only one process writes it", run_dir, error.strerror)
        yield
    finally:
        os.close(descriptor)
