"""Detect processes that the kernel killed because memory ran out; their exit status is that of any `kill -9`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

FIRST = 300  # of 1000 (all memory), added to the process's share of memory; see proc(5), oom_score_adj


def prefer_as_victim() -> None:
    """Make this process a preferred victim: a worker can be replaced, the driver cannot."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(FIRST), encoding="utf-8")


def kill_count() -> int:
    """Number of processes killed for lack of memory so far, in this control group or on the whole machine.

    It is 0 where the kernel does not report it.
    """
    for path in _places():
        with suppress(OSError):
            words = path.read_text(encoding="utf-8").split()
            if "oom_kill" in words:
                return int(words[words.index("oom_kill") + 1])
    return 0


def _places() -> list[Path]:
    """Files with the count: of control groups version 2, of version 1, and of the whole machine."""
    top = Path("/sys/fs/cgroup")
    places = []
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                places.append(top / path[1:] / "memory.events")
            elif "memory" in controllers.split(","):  # inside a container its own group is the root
                places += [top / "memory" / folder / "memory.oom_control" for folder in (path[1:], "")]
    return [*places, Path("/proc/vmstat")]
