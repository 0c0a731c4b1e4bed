"""Where a server of games listens: ``HOST:PORT`` or ``unix:PATH``."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import stat
from contextlib import suppress
from typing import NamedTuple

from evorl.util.errors import BadRequest

LOOPBACK = "127.0.0.1"
MIN_TOKEN, MAX_TOKEN = 16, 256
"""Letters of a token: so many at least where other machines may reach a server, and so many at most."""
BACKLOG = 1024


class Address(NamedTuple):
    host: str
    port: int
    path: str  # of a Unix socket; empty for TCP

    @property
    def text(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def values(self) -> dict[str, object]:
        """What a command may name in braces, and a game finds in its environment as EVORL_..."""
        return {"address": self.text, "host": self.host, "port": self.port}

    def remove(self) -> None:
        """Remove what a Unix socket leaves behind."""
        if self.path:
            with suppress(FileNotFoundError):
                os.unlink(self.path)


def parsed(listen: str | None) -> Address:
    """Read ``listen``; None is a free port of this machine. Raises `BadRequest`."""
    if listen is None:
        return Address(LOOPBACK, 0, "")
    if listen.startswith("unix:"):
        path = listen.removeprefix("unix:")
        if not 0 < len(os.fsencode(path)) <= 100:
            raise BadRequest("the path of a Unix socket has 1 to 100 bytes", "listen")
        return Address("", 0, path)
    found = re.fullmatch(r"(?:\[([^]/]+)]|([^][:/]+)):([0-9]+)", listen)
    if found is None or int(found[3]) > 65535:
        raise BadRequest(f"{listen} is no HOST:PORT, such as 127.0.0.1:5005 or [::1]:5005, and no unix:PATH", "listen")
    return Address(found[1] or found[2], int(found[3]), "")


def check(listen: str | None, has_token: bool = True) -> None:
    """Raise `BadRequest` for an address that cannot be meant, or that other machines reach without a secret.

    ``has_token``: whether the protocol asks for one. Then `BadRequest` is raised for one that no game can send, too.
    """
    address, letters = parsed(listen), len(os.environ.get("EVORL_TOKEN", ""))
    if listen is not None and has_token and letters > MAX_TOKEN:
        raise BadRequest(f"EVORL_TOKEN has {letters:,} letters, and {MAX_TOKEN} may be", "listen")
    if address.path or is_loopback(address.host):
        return
    if not has_token:
        why = "which could play the game, since its protocol has no token; use an SSH tunnel to 127.0.0.1"
        raise BadRequest(f"{address.text} can be reached from other machines, {why}", "listen")
    if letters >= MIN_TOKEN:
        return
    raise BadRequest(
        f"{address.text} can be reached from other machines: set EVORL_TOKEN to a secret of {MIN_TOKEN} letters",
        "listen",
    )


def is_one(listen: str | None) -> bool:
    """Whether ``listen`` names one address, and not any free port."""
    address = parsed(listen)
    return bool(address.path or address.port)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listener(listen: str | None) -> tuple[Address, socket.socket]:
    """Open a socket that listens there. Raises `BadRequest`."""
    address = parsed(listen)
    family = socket.AF_UNIX if address.path else socket.AF_INET6 if ":" in address.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        if address.path:
            before = os.umask(0o177)  # nobody else may connect
            try:
                _bind(opened, address.path)
            finally:
                os.umask(before)
        else:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((address.host, address.port))
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise BadRequest(f"cannot listen at {address.text}: {error.strerror}", "listen") from None
    opened.setblocking(False)
    return address if address.path else address._replace(port=opened.getsockname()[1]), opened


def _bind(opened: socket.socket, path: str) -> None:
    """Bind a Unix socket, also where a process that was killed has left its own. Raises OSError."""
    try:
        opened.bind(path)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not _is_deserted(path):
            raise
        os.unlink(path)
        opened.bind(path)


def _is_deserted(path: str) -> bool:
    """Whether a path is a socket at which nobody listens."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.setblocking(False)  # a server whose queue is full is there, too
        return visitor.connect_ex(path) == errno.ECONNREFUSED
