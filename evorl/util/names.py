"""Names of files and directories that records can hold: YAML and JSON are UTF-8."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from evorl.util.errors import BadRequest, nearest, one_edit
from evorl.util.run_directory import PARTIAL


def readable(name: str) -> str:
    """A name whose bytes that Python could not decode (PEP 383) are written as ``\\xe9``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def check_name(name: str, key: str = "") -> None:
    """Raise `BadRequest` at ``key`` for a name with bytes that Python could not decode."""
    if (shown := readable(name)) != name:
        encoding = sys.getfilesystemencoding().upper()
        raise BadRequest(f"'{shown}' is not {encoding}, and records cannot hold it; rename it", key)


FILES = {
    *("bin", "ckpt", "h5", "jit", "keras", "npy", "npz", "onnx", "pb", "pickle", "pkl", "pt", "pt2", "pth"),
    *("safetensors", "tflite", "torchscript", "gz", "tar", "zip", "csv", "json", "jsonl", "parquet", "yaml", "yml"),
    *("gif", "html", "md", "mp4", "pdf", "png", "py", "svg", "tex", "txt"),
}
"""Suffixes that name a file and no directory."""


def check_names_directory(name: str, makes: str, key: str) -> None:
    """Raise `BadRequest` at ``key`` for no name, or one like a file's; ``makes`` says what the directory holds."""
    if not name:
        raise BadRequest("needs a directory", key)
    path = Path(name)
    check_names(path, "the directory", key)
    if path.suffix.lower().lstrip(".") in FILES and not path.is_dir():
        raise BadRequest(f"{path.name} looks like a file, and this makes {makes}: {key}={path.with_suffix('')}", key)


NAME_BYTES = 255
"""Most bytes of the name of a file or folder."""


def check_names(place: Path, what: str, key: str, advice: str = "") -> None:
    """Raise `BadRequest` at ``key`` where a name of a path is longer than names may be."""
    if (bytes_ := max((len(os.fsencode(part)) for part in place.parts), default=0)) > NAME_BYTES:
        raise BadRequest(f"the name of {what} takes {bytes_} bytes, more than the {NAME_BYTES} that fit{advice}", key)


def check_can_be_made(place: Path, within: Iterable[Path], key: str = "") -> None:
    """Raise `BadRequest` at ``key`` unless the first that there is of the directories ``within`` can be written.

    A name that begins with ``~`` is refused: who writes it means a home directory, and may later remove that one. There
    must be room for the name of the hidden file in which its content is written first.
    """
    check_names(place, "the file or directory", key)
    check_names(Path(PARTIAL.format(place.name)), "the hidden file in which it is written first", key)
    if str(place).startswith("~"):
        raise BadRequest(f"shells do not expand ~ after the equals sign; write {key}=$HOME{str(place)[1:]}", key)
    above = next(path for path in within if path.exists())
    if not (above.is_dir() and _can_be_written(above)):
        raise BadRequest(f"cannot make {place}: {above} cannot be written", key)


@contextmanager
def making(place: Path, key: str = "") -> Iterator[None]:
    """Raise `BadRequest` at ``key`` where the system refuses to make a directory."""
    try:
        yield
    except OSError as error:
        raise BadRequest(f"cannot make {place}: {error.strerror}", key) from error


def _can_be_written(directory: Path) -> bool:
    if not os.access(directory, os.W_OK | os.X_OK):
        return False
    try:  # root may write everywhere, and yet /proc takes no file
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return False
    return True


def no_such_run(name: str, key: str = "", hint: str = "") -> BadRequest:
    """The error at ``key`` for a run directory that is not there, with the nearest beside it, else with ``hint``."""
    above, last = Path(name).parent, Path(name).name
    there = os.listdir(above) if os.path.isdir(above) and os.access(above, os.R_OK) else []
    near = [entry for entry in there if one_edit(last, entry)] or get_close_matches(last, there, 9)
    beside = [str(above / entry) for entry in near]  # the same folder alone is not near
    return BadRequest(f"{name}: no such run directory{nearest(name, beside) or hint}", key)


def check_run_is_there(directory: Path, key: str) -> None:
    """Raise `BadRequest` at ``key`` unless something stands at the place of a run directory."""
    if not os.path.lexists(directory):
        raise no_such_run(str(directory), key)


def check_directory() -> None:
    """Raise `BadRequest` if the path of the working directory is not UTF-8. One that is gone passes."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return
    check_name(here, "the working directory")
