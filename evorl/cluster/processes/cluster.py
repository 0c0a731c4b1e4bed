"""Plain processes on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evorl.cluster.core import Cluster, Group, Make, used_workers
from evorl.util.types import Count, Positive


@dataclass(frozen=True, kw_only=True)
class Processes(Cluster):
    """Members in processes of this machine, forked from one that has everything imported."""

    in_process: ClassVar[bool] = False

    workers: Count = 2
    """Processes; more than there are members stay away. What comes out does not depend on it."""
    deadline_s: Positive = 120.0
    """Seconds without an answer after which a worker counts as hung and is replaced."""

    def spawn(self, make: Make, size: int, plain: Sequence[type[Exception]] = ()) -> Group:
        from evorl.cluster.processes.launcher import ProcessLauncher
        from evorl.cluster.workers.group import RemoteGroup

        return RemoteGroup(ProcessLauncher(make, used_workers(self.workers, size)), size, self.deadline_s, plain)
