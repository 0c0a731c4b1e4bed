"""How many files this process may still open."""

from __future__ import annotations

import os
import resource


def used() -> int:
    """Return the number of files that this process has open. Raises OSError if none is left for counting."""
    return len(os.listdir("/proc/self/fd")) - 1  # without that of the listing


def left() -> int:
    """Return the number of files that this process may still open, below its soft limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        return max(soft - used(), 0) if soft != resource.RLIM_INFINITY else 1 << 30
    except OSError:
        return 0
