"""Every access to the files of a run, sweep or search directory, which may come from somebody else.

A directory is given by its path, and the path may be a link. Below it none is followed: each part of a name is opened
relative to the descriptor of the part before it. Only regular files are read and written, so nothing waits for ever on
a FIFO. Each read has a bound, which is checked before a byte is read. A new file is one that was not there. Names are
evorl's own, or those that `is_name` accepts.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evorl.util import yaml_text
from evorl.util.errors import BadRequest

PARTIAL = ".{}.partial"
"""The file in which a file is written before it takes that one's name."""
DOCUMENT = 1 << 24
"""Most bytes of a document of JSON, such as result.json."""
CONFIG = 1 << 20
"""Most bytes of a config file."""
LINE = 1 << 24
"""Most bytes of a line in a file of JSON lines."""
ROWS = 1 << 30
"""Most bytes of a file of JSON lines that is read as a whole."""
DEPTH = 100
"""Most levels of a document of JSON."""
_log = logging.getLogger("evorl")
_BLOCK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NAME = re.compile(r"[^\x00/]+")


class Unsafe(BadRequest, OSError):
    """What stands under a name is not what evorl writes there: a link, no regular file, or far too large."""

    def __init__(self, path: Path, why: str) -> None:
        BadRequest.__init__(self, f"{path}: {why}")
        self.errno, self.strerror, self.filename = errno.EINVAL, why, str(path)


class Entry(NamedTuple):
    """A name in a directory, and what stands there."""

    name: str
    kind: str
    """``folder``, ``file``, ``link`` or ``other``."""


def is_name(word: str) -> bool:
    """Return whether a word is the name of something in a directory, and not a path or a hidden file."""
    return bool(_NAME.fullmatch(word)) and not word.startswith(".") and len(word) <= 255


# ------------------------------------------------------------------ reading


def read(root: Path, name: str, most: int) -> bytearray:
    """Return the content of a file. Raises OSError, and `Unsafe` for more than ``most`` bytes."""
    with opened(root, name) as file:
        size = os.fstat(file).st_size
        if size > most:
            raise Unsafe(root / name, f"it has {size:,} bytes, and at most {most:,} are read")
        content = bytearray(size)
        end = 0
        with memoryview(content) as whole:
            while end < size and (count := os.readv(file, [whole[end : end + (_BLOCK << 6)]])):
                end += count
        del content[end:]
        return content


def read_json(root: Path, name: str) -> Any:
    """Return a document of JSON. Raises OSError, and ValueError if it is not valid (`parse_json`)."""
    return parse_json(bytes(read(root, name, DOCUMENT)))


def read_yaml(root: Path, name: str) -> Any:
    """Return a document of YAML. Raises OSError, and ValueError if it is not valid (`yaml_text.parse`)."""
    return yaml_text.parse(bytes(read(root, name, CONFIG)))


def parse_json(content: bytes) -> Any:
    """Parse JSON, in which NaN and Infinity may stand. Raises ValueError, also for too many levels."""
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):  # it knows neither NaN nor Infinity
        if b"\\ud" in content.lower():
            raise
        value = _parse_json_loosely(content)
    except RecursionError:
        raise ValueError("too many levels") from None
    _check_depth(value, DEPTH)
    return value


def _parse_json_loosely(content: bytes) -> Any:
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("too many levels") from None


def _check_depth(tree: Any, left: int) -> None:
    if left == 0:
        raise ValueError("too many levels")
    if isinstance(tree, dict | list):
        for child in tree.values() if isinstance(tree, dict) else tree:
            if isinstance(child, dict | list):
                _check_depth(child, left - 1)


def lines(root: Path, name: str) -> Iterator[bytes]:
    """Yield the complete lines of a file of JSON lines, without their ends; one of more than `LINE` bytes is empty.

    Raises OSError, and `Unsafe` for a file of more than `ROWS` bytes.
    """
    with opened(root, name) as file:
        size = os.fstat(file).st_size
        if size > ROWS:
            raise Unsafe(root / name, f"it has {size:,} bytes, and at most {ROWS:,} are read")
        for line, _ in follow_lines(file, 0):
            yield line


def follow_lines(file: int, offset: int) -> Iterator[tuple[bytes, int]]:
    """Yield the complete lines of an open file from an offset on, and the offset after each of them."""
    rest: list[bytes] = []
    length = 0
    place = offset
    while block := os.pread(file, _BLOCK, place):
        place += len(block)
        *ends, last = block.split(b"\n")
        for end in ends:
            length += len(end) + 1
            offset += length
            yield (b"".join([*rest, end]) if length <= LINE else b""), offset
            rest, length = [], 0
        length += len(last)
        rest = [*rest, last] if length <= LINE else []


def exists(root: Path, name: str) -> bool:
    """Return whether a regular file stands under a name."""
    return _mode(root, name, stat.S_ISREG)


def is_folder(root: Path, name: str) -> bool:
    """Return whether a folder stands under a name, and not a link to one."""
    return _mode(root, name, stat.S_ISDIR)


def is_link(root: Path, name: str) -> bool:
    """Return whether a link stands under a name."""
    return _mode(root, name, stat.S_ISLNK)


def entries(root: Path, name: str = "") -> list[Entry]:
    """Return what stands in the directory, or in a folder of it, by name. Raises OSError."""
    with _folder(root, name) as folder, os.scandir(folder) as scan:
        return sorted(Entry(entry.name, _kind(entry)) for entry in scan)


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _mode(root: Path, name: str, test: Any) -> bool:
    try:
        with _place(root, name) as (folder, last):
            return bool(test(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode))
    except (OSError, ValueError):
        return False


# ------------------------------------------------------------------ writing


def write(root: Path, name: str, chunks: Iterable[bytes | memoryview]) -> tuple[int, str]:
    """Write a new file to stable storage; return its size in bytes and its SHA-256. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with opened(root, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
            write_all(file, chunk)
        os.fsync(file)
    return size, digest.hexdigest()


def write_all(file: int, chunk: bytes | memoryview) -> None:
    """Write every byte: one `os.write` may write fewer bytes than it was given."""
    rest = memoryview(chunk)
    while len(rest):
        rest = rest[os.write(file, rest) :]


def replace(root: Path, name: str, content: bytes) -> None:
    """Replace a file atomically: readers see the whole old content or the whole new content. Raises OSError.

    A folder under this name is kept under another, with a warning.
    """
    folder, slash, last = name.rpartition("/")
    temporary = f"{folder}{slash}{PARTIAL.format(last)}"
    remove(root, temporary)  # of a process that was killed
    write(root, temporary, [content])
    if is_folder(root, name):
        _log.warning("%s was a folder, which is kept as %s", root / name, set_aside(root, name))
    with _folder(root, folder) as opened:
        os.replace(PARTIAL.format(last), last, src_dir_fd=opened, dst_dir_fd=opened)
        os.fsync(opened)


def write_json(root: Path, name: str, value: Any) -> None:
    """Replace a file by a value as indented JSON; numbers that are not finite become null."""
    replace(root, name, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def make_folder(root: Path, name: str) -> bool:
    """Make a folder where there is none; return whether it was made. Raises `Unsafe` for a link or a file there."""
    try:
        with _place(root, name) as (folder, last):
            os.mkdir(last, dir_fd=folder)
    except FileExistsError:
        with _folder(root, name):
            return False
    return True


def rename(root: Path, old: str, new: str) -> None:
    """Rename a file, folder or link; what stands under the new name is replaced. Raises OSError."""
    with _place(root, old) as (folder, last), _place(root, new) as (target, name):
        os.rename(last, name, src_dir_fd=folder, dst_dir_fd=target)


def set_aside(root: Path, name: str, mark: str = "") -> str:
    """Rename what stands under a name to the next free one: ``name.1.json``, or ``name.MARK.json``; return that."""
    folder, slash, last = name.rpartition("/")
    stem, dot, suffix = last.partition(".")
    numbers = chain([mark] if mark else [], (f"{mark}.{n}".removeprefix(".") for n in count(1)))
    names = (f"{folder}{slash}{stem}.{number}{dot}{suffix}" for number in numbers)
    free = next(candidate for candidate in names if not exists_at_all(root, candidate))
    rename(root, name, free)
    return free


def link(root: Path, source: str, target: str) -> None:
    """Give a regular file a second name, or copy it where the file system has no hard links. Raises OSError."""
    with opened(root, source) as file:
        try:
            with _place(root, source) as (folder, last), _place(root, target) as (other, name):
                os.link(last, name, src_dir_fd=folder, dst_dir_fd=other, follow_symlinks=False)
            return
        except FileNotFoundError:
            raise
        except OSError:
            write(root, target, iter(lambda: os.read(file, _BLOCK), b""))


def unlink(root: Path, name: str) -> None:
    """Remove a file or a link, not what it leads to. Raises OSError."""
    with _place(root, name) as (folder, last):
        os.unlink(last, dir_fd=folder)


def remove(root: Path, name: str) -> None:
    """Remove a file, a link (not what it leads to), or a folder with what is in it. Raises OSError."""
    if is_folder(root, name):
        for entry in entries(root, name):
            (remove if entry.kind == "folder" else unlink)(root, f"{name}/{entry.name}")
        with _place(root, name) as (folder, last):
            os.rmdir(last, dir_fd=folder)
    elif exists_at_all(root, name):
        unlink(root, name)


def exists_at_all(root: Path, name: str) -> bool:
    """Return whether anything stands under a name, also a link that leads nowhere."""
    return _mode(root, name, lambda mode: True)


def sync(root: Path, name: str = "") -> None:
    """Flush the names in the directory, or in a folder of it, to stable storage."""
    with _folder(root, name) as folder:
        os.fsync(folder)


# ------------------------------------------------------------------ opening


@contextmanager
def opened(root: Path, name: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open a regular file (`descriptor`) and close it at the end."""
    file = descriptor(root, name, flags)
    try:
        yield file
    finally:
        os.close(file)


def descriptor(root: Path, name: str, flags: int) -> int:
    """Open a regular file; return its descriptor. Raises OSError, and `Unsafe` for a link or what is no file."""
    with _place(root, name) as (folder, last):
        try:
            file = os.open(last, flags | _SAFE, 0o644, dir_fd=folder)
        except OSError as error:
            raise _explained(error, root / name, folder, last) from None
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise Unsafe(root / name, "it is no regular file")
    if flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1:
        os.close(file)
        raise Unsafe(root / name, "it has another name elsewhere (a hard link), where writing would change it too")
    return file


@contextmanager
def _place(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """The descriptor of the folder that a name stands in, and the last part of the name."""
    folder, _, last = name.rpartition("/")
    if last in ("", ".", "..") or "\0" in last:
        raise Unsafe(root / name, "this is no name of a file")
    with _folder(root, folder) as opened:
        yield opened, last


@contextmanager
def _folder(root: Path, name: str) -> Iterator[int]:
    """The descriptor of the directory, or of a folder of it."""
    folder = os.open(root, _FOLDER)
    try:
        below = root
        for part in name.split("/") if name else ():
            below = below / part
            if part in ("", ".", ".."):
                raise Unsafe(below, "this is no name of a folder")
            try:
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            except OSError as error:
                raise _explained(error, below, folder, part, "folder") from None
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _explained(error: OSError, path: Path, folder: int, last: str, kind: str = "regular file") -> OSError:
    """The error of a link, of another kind of file, or of what is denied, as `Unsafe`; others with the whole path."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Unsafe(path, os.strerror(error.errno))
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
        with suppress(OSError):
            mode = os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode
            link = stat.S_ISLNK(mode)
            return Unsafe(path, "it is a link, and none in a run directory is followed" if link else f"it is no {kind}")
    return type(error)(error.errno, error.strerror, str(path)) if error.errno else error
