"""Which processes can read each other's memory."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def here() -> str:
    """Names what this process shares with those that may map its memory: kernel, process namespace and user."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.stat('/proc/self/ns/pid').st_ino} {os.geteuid()}"
