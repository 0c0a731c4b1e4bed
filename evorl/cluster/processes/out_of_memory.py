"""Whether the kernel ended processes for want of memory: what it does to them looks like any `kill -9`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

FIRST = 300  # of 1000, which are all memory: so much more than it has is it taken to have; see proc(5), oom_score_adj


def prefer_as_victim() -> None:
    """Be ended before others are: a worker can be replaced, and the driver cannot."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(FIRST))


def kill_count() -> int:
    """Processes that the kernel has ended for want of memory so far: in this process's control group, or at all.

    The number says more the fewer others there are; without one it stays 0.
    """
    for path in _places():
        with suppress(OSError):
            words = path.read_text().split()
            if "oom_kill" in words:
                return int(words[words.index("oom_kill") + 1])
    return 0


def _places() -> list[Path]:
    """Where the kernel may count: control groups of version 2, of version 1, and the whole machine."""
    top = Path("/sys/fs/cgroup")
    places = []
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                places.append(top / path[1:] / "memory.events")
            elif "memory" in controllers.split(","):  # within a container its group is the top one
                places += [top / "memory" / one / "memory.oom_control" for one in (path[1:], "")]
    return [*places, Path("/proc/vmstat")]
