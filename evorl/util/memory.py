"""Memory that this process may still take: of the machine, and below the limits of its control groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil


class Memory(NamedTuple):
    """``left`` bytes may still be taken; ``bound`` says in words by what they are bounded."""

    left: int
    bound: str


def available(root: Path = Path("/")) -> Memory:
    """Return the memory that is left. ``root`` is the file system that the control groups are read from."""
    machine = psutil.virtual_memory()
    limits = [Memory(machine.available, f"this machine has {gigabytes(machine.total)}"), *_control_groups(root)]
    return min(limits, key=lambda limit: limit.left)


def gigabytes(count: float) -> str:
    """Bytes in GB, 10^9, or in MB where that is less than 1."""
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"


def _control_groups(root: Path) -> Iterator[Memory]:
    """Yield what is left below the limit of each control group that this process is in (versions 1 and 2)."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _limits(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _limits(root / "sys/fs/cgroup/memory", path, *names)


def _limits(base: Path, path: str, limit: str, usage: str, cache: str) -> Iterator[Memory]:
    """Yield the memory below the limit of a group and of each one around it. Inside a container the path may name no
    directory; the container's own group is then ``base``."""
    own = base / path.strip("/")
    for group in (own, *(parent for parent in own.parents if parent.is_relative_to(base))):
        try:
            most = int((group / limit).read_text(encoding="utf-8"))  # "max" is no number
            used = int((group / usage).read_text(encoding="utf-8")) - _cached(group, cache)
        except (OSError, ValueError):
            continue
        yield Memory(max(most - used, 0), f"the limit of its cgroup is {gigabytes(most)}")


def _cached(group: Path, name: str) -> int:
    """Bytes of file cache that the kernel drops where memory is needed."""
    for line in (group / "memory.stat").read_text(encoding="utf-8").splitlines():
        word, _, value = line.partition(" ")
        if word == name:
            return int(value)
    return 0
