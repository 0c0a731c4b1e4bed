"""Checkpoints: a directory each, complete or absent, checked whenever it is read.

``checkpoints/<step>/`` holds

* ``tensors.safetensors``: every array of the state, its keys joined by "/";
* ``state.json``: the rest, with null where an array stood;
* ``manifest.json``: the SHA-256 and size of both, the step, and a checksum of itself.

They are written under another name, made durable, and renamed, so whatever happens
a reader finds the whole old state or the whole new one. What goes in comes out:
NumPy arrays as NumPy arrays, torch tensors as torch tensors (on the CPU).
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
from evorl.util import files
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict

SCHEMA = 1

_TENSORS, _STATE, _MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_log = logging.getLogger("evorl")


class Damaged(BadRequest):
    """A checkpoint is not what was written; the message names the file."""


class Busy(BadRequest):
    """Another process holds the directory."""


# ------------------------------------------------------------------ saving


def save(
    run_dir: Path, step: int, state: StateDict, keep: int, best: int | None = None, *, again: bool = False
) -> Path:
    """Save a state as the checkpoint of a step; return its directory.

    Older checkpoints are removed once this one is complete, but for the ``keep`` newest and ``best``.
    A checkpoint that already stands whole at this step stays as it is, unless ``again`` asks for it anew; between
    the renames of its exchange the one before is the newest. Raises OSError (a full disk) with the earlier
    checkpoints intact, TypeError for a state that cannot be saved.
    """
    home = run_dir / "checkpoints"
    if not home.exists():
        home.mkdir()
        files.sync(run_dir)
    for litter in home.glob(".*"):
        _remove(litter)
    target = home / str(step)
    if again or not _whole(target):
        _write(home / f".{step}.partial", target, step, state)
    files.replace(home / "latest", f"{step}\n".encode())
    _prune(home, step, keep, best)
    return target


def _write(beside: Path, target: Path, step: int, state: StateDict) -> None:
    arrays: dict[str, Any] = {}
    rest = _split(state, (), arrays)
    torch = {
        name: str(array.dtype).removeprefix("torch.") for name, array in arrays.items() if tensors.is_tensor(array)
    }
    document = json.dumps({"torch": torch, "state": rest}).encode()
    try:
        beside.mkdir()
        entries = {
            _TENSORS: files.write(beside / _TENSORS, tensors.encode(arrays)),
            _STATE: files.write(beside / _STATE, [document]),
        }
        files.write(beside / _MANIFEST, [_manifest(step, entries)])
        files.sync(beside)
        _discard(target)
        os.rename(beside, target)
        files.sync(target.parent)
    except BaseException:
        with suppress(OSError):
            _remove(beside)
        raise


def _manifest(step: int, entries: dict[str, tuple[int, str]]) -> bytes:
    content = {
        "schema": SCHEMA,
        "evorl": evorl.__version__,
        "step": step,
        "files": {name: {"size": size, "sha256": digest} for name, (size, digest) in entries.items()},
    }
    return _sealed(content)


def _sealed(content: dict[str, Any]) -> bytes:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**content, "sha256": digest}, indent=2) + "\n").encode()


def _split(node: Any, path: tuple[str, ...], arrays: dict[str, Any]) -> Any:
    """The state without its arrays, which go to ``arrays`` under their names."""
    if isinstance(node, np.ndarray) or tensors.is_tensor(node):
        arrays[_name(path)] = node
        return None
    if isinstance(node, np.generic):
        return node.item()
    if isinstance(node, dict) and all(isinstance(key, str) for key in node):
        return {key: _split(child, (*path, key), arrays) for key, child in node.items()}
    if isinstance(node, list):
        return [_plain(child, path) for child in node]
    return _plain(node, path)


def _plain(node: Any, path: tuple[str, ...]) -> Any:
    """A JSON scalar, or lists of them."""
    if isinstance(node, list):
        return [_plain(child, path) for child in node]
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise TypeError(f"{_name(path)}: a {type(node).__name__} cannot be saved here")


def _name(path: tuple[str, ...]) -> str:
    """The keys joined by "/"; as in a JSON pointer, "~" and "/" within a key become "~0" and "~1"."""
    return "/".join(word.replace("~", "~0").replace("/", "~1") for word in path)


def _prune(home: Path, step: int, keep: int, best: int | None) -> None:
    # A checkpoint beyond this step was found damaged, or the run would stand there: it must not count as kept.
    reached = [old for old in steps(home.parent) if old <= step]
    for old in reached[:-keep]:
        if old != best:
            _discard(home / str(old))


def _discard(directory: Path) -> None:
    """Remove a checkpoint; the renaming makes it vanish at once, whatever interrupts the rest."""
    if directory.exists():
        gone = directory.with_name(f".{directory.name}.gone")
        os.rename(directory, gone)
        _remove(gone)


def _remove(path: Path) -> None:
    if path.is_dir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _whole(directory: Path) -> bool:
    with suppress(Damaged):
        load(directory)
        return True
    return False


# ------------------------------------------------------------------ loading


def steps(run_dir: Path) -> list[int]:
    """The steps that have a checkpoint directory, rising; whether each is whole shows on loading."""
    home = run_dir / "checkpoints"
    return sorted(int(path.name) for path in home.glob("[0-9]*") if path.name.isdecimal() and path.is_dir())


def newest(run_dir: Path) -> tuple[Path, StateDict] | None:
    """The newest whole checkpoint and its state; None where none was ever saved.

    A damaged one is passed over with a warning. Raises `Damaged` when none of them is whole.
    """
    damaged: list[tuple[int, Damaged]] = []
    for step in reversed(steps(run_dir)):
        path = run_dir / "checkpoints" / str(step)
        try:
            state = load(path)
        except Damaged as error:
            damaged.append((step, error))
            continue
        for other, why in damaged:
            _log.warning("checkpoint %d is damaged (%s); falling back to the one before", other, why)
        return path, state
    if damaged:
        raise Damaged(f"no checkpoint in {run_dir / 'checkpoints'} is whole ({damaged[0][1]})")
    return None


def load(path: Path) -> StateDict:
    """The state of a checkpoint directory. Raises `Damaged`, naming the file, unless every byte is as written."""
    manifest = _read_manifest(path)
    arrays: dict[str, Any] = {**tensors.decode(_verified(path / _TENSORS, manifest["files"][_TENSORS]))}
    document = json.loads(_verified(path / _STATE, manifest["files"][_STATE]))
    for name, dtype in document["torch"].items():
        arrays[name] = tensors.to_torch(arrays[name], dtype)
    state: StateDict = document["state"]
    for name, array in arrays.items():
        _place(state, name, array)
    return state


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / _MANIFEST
    content = _read(file)
    try:
        manifest: dict[str, Any] = json.loads(content)
        sealed = _sealed({key: value for key, value in manifest.items() if key != "sha256"})
    except (ValueError, AttributeError) as error:
        raise Damaged(f"{file}: {error}") from None
    if sealed != content:
        raise Damaged(f"{file}: its checksum does not match")
    if manifest["schema"] != SCHEMA:
        raise BadRequest(
            f"{path} was written by evorl {manifest['evorl']}, in a form this version cannot read", "resume"
        )
    if str(manifest["step"]) != path.name:
        raise Damaged(f"{file}: it belongs to step {manifest['step']}")
    return manifest


def _verified(file: Path, entry: dict[str, Any]) -> bytearray:
    content = _read(file)
    if len(content) != entry["size"]:
        raise Damaged(f"{file}: {len(content)} bytes instead of {entry['size']}")
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise Damaged(f"{file}: its checksum does not match")
    return content


def _read(file: Path) -> bytearray:
    try:
        with file.open("rb") as stream:
            content = bytearray(os.fstat(stream.fileno()).st_size)
            del content[stream.readinto(content) :]
            return content
    except OSError as error:
        raise Damaged(f"{file}: {error.strerror}") from None


def _place(state: StateDict, name: str, array: Any) -> None:
    *parents, last = (word.replace("~1", "/").replace("~0", "~") for word in name.split("/"))
    for word in parents:
        state = state[word]
    state[last] = array


# ------------------------------------------------------------------ one writer


@contextmanager
def lock(run_dir: Path, key: str = "resume") -> Iterator[None]:
    """Hold a run directory for this process alone; raises `Busy` (at ``key``) when another one writes it.

    The system lets go of the lock when the process ends, however it ends.
    """
    import fcntl

    descriptor = os.open(run_dir / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another process is writing {run_dir}", key) from None
        except OSError as error:  # some network file systems have no locks
            _log.warning("%s cannot be locked (%s): let one process write it", run_dir, error.strerror)
        yield
    finally:
        os.close(descriptor)
