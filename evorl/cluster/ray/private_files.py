"""Files that only their user may reach: Ray's token, the directories of a run's own Ray and of a group's socket.

Ray itself writes its token with the usual permissions, and lets everybody write to its directories. Who has the token,
or can put another socket in the place of Ray's, runs code as the user of that Ray.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
import stat
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path

from evorl.cluster.transport.host import short_directory

log = logging.getLogger("evorl")

OTHERS = 0o077  # permissions of all but the user
BELOW = 68  # characters that Ray adds to its directory in the paths of its sockets
NAMED = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # where users keep a token of their own


def ensure_token() -> bool:
    """Make the token that Ray reads private, and draw a token if there is none; return whether it was drawn.

    A token that the user names is left alone. Raises OSError if none can be written.
    """
    if any(name in os.environ for name in NAMED):
        return False
    path = Path.home() / ".ray" / "auth_token"
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    close_token()
    if path.exists():
        return False
    drawn = path.with_name(f".auth_token.{secrets.token_hex(8)}")
    descriptor = os.open(drawn, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_hex(32))  # as Ray does
        try:
            os.link(drawn, path)
        except FileExistsError:  # another run was first: its token is the one
            pass
        except OSError:  # a file system without hard links
            drawn.rename(path)
    finally:
        drawn.unlink(missing_ok=True)
    return True


def close_token() -> None:
    """Take the permissions of other users from Ray's token, and from its directory, where they have any; warn of it."""
    path = Path.home() / ".ray" / "auth_token"
    if _close(path) & 0o044 and os.stat(path).st_size:
        log.warning(
            "Ray's token (%s) could be read by other users of this machine, who may run code with it on your Ray; now "
            "only you can. To draw another one, stop every Ray of yours, remove the file and copy the new one to your "
            "other machines", path,
        )  # fmt: skip
    _close(path.parent)


def _close(path: Path) -> int:
    """Take the permissions of other users from a file of this user; return those that they had."""
    with suppress(OSError):  # it is not there, or its file system cannot be written to
        status = os.stat(path)
        if status.st_uid == os.geteuid() and status.st_mode & OTHERS:
            os.chmod(path, stat.S_IMODE(status.st_mode) & ~OTHERS)
            return status.st_mode & OTHERS
    return 0


class SocketDirectory:
    """A private directory for a group's socket, at ``path``. It is locked as long as this process lives.

    Those that processes of this user and machine have left, which were killed, are removed first.
    """

    def __init__(self) -> None:
        prefix = f"evorl-ray-{zlib.crc32(os.uname().nodename.encode()):08x}-"
        place = short_directory(f"{prefix}12345678/group")
        for left in Path(place).glob(f"{prefix}*"):
            _remove_deserted(left)
        made = tempfile.mkdtemp(prefix="evorl-", dir=place)
        self._lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # a file system without locks: then nobody else can lock and remove it, either
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path = os.path.join(place, prefix + made[-8:])
        os.rename(made, self.path)  # last: what has this name and no lock was left

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_deserted(directory: Path) -> None:
    """Remove a directory of this user that no process has locked."""
    with suppress(OSError):  # it is locked, not ours, or was removed just now
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(descriptor)


def session_directory() -> str:
    """Return a directory for the sessions of a run's own Ray, in one that only this user can enter.

    It is in ``RAY_TMPDIR`` or the temporary directory, or in /tmp if the paths of sockets would be too long.
    """
    name = f"evorl-{os.geteuid()}"
    usual = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    place = short_directory(f"{name}/ray{'x' * BELOW}", usual)
    return os.path.join(_private_directory(place, name), "ray")


def _private_directory(place: str, name: str) -> str:
    """Return a directory of this user alone: of this name, or of another one if somebody else has taken it."""
    path = os.path.join(place, name)
    os.makedirs(place, exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return tempfile.mkdtemp(prefix="evorl-", dir=place)
    if status.st_mode & OTHERS:
        os.chmod(path, 0o700)
    return path
