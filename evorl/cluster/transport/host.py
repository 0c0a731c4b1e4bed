"""This host: its identity, and short directories for Unix sockets."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

MAX_SOCKET_PATH = 107  # bytes: Linux's limit for the path of a Unix socket


@cache
def host_id() -> str:
    """Return an identifier shared by the processes that can map this process's memory: kernel, pid namespace, user."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{boot} {os.stat('/proc/self/ns/pid').st_ino} {os.geteuid()}"


def short_directory(below: str, usual: str | None = None) -> str:
    """Return the ``usual`` temporary directory, or /tmp if the path of a socket at ``below`` in it is too long."""
    place = usual or tempfile.gettempdir()
    return place if len(os.fsencode(os.path.join(place, below))) <= MAX_SOCKET_PATH else "/tmp"
