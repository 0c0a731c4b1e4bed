"""How many files a driver opens for its workers, and whether so many are allowed."""

from __future__ import annotations

import resource

from evorl.cluster.transport.authentication import SPARE_CONNECTIONS
from evorl.util.descriptors import used
from evorl.util.errors import BadRequest

EACH = 4  # files of one worker: its connections, and the blocks of memory shared with it
PLENTY = 1 << 16  # open files, so that a burst of foreign connections does not use them up before it is cut
RESERVE = 64  # files of everything else that the run is going to open: metrics, checkpoints, libraries


def require_descriptors(workers: int) -> None:
    """Raise the soft limit of open files to `PLENTY`, or to what so many workers need.

    Raises `BadRequest` if the hard limit is too low.

    A run that lacks descriptors later could neither save nor say so: ZeroMQ ends a process that cannot accept.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = used() + EACH * workers + SPARE_CONNECTIONS + RESERVE
    if needed > hard != resource.RLIM_INFINITY:
        raise BadRequest(
            f"{workers} workers take {needed} open files, and {hard} are allowed (ulimit -Hn); take fewer workers, or "
            "have the limit raised",
            "cluster.workers",
        )
    wanted = max(needed, PLENTY) if hard == resource.RLIM_INFINITY else min(max(needed, PLENTY), hard)
    if wanted > soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
