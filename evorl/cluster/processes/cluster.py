"""``cluster=processes``: workers as processes of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evorl.cluster.core import Cluster, Group, Make, used_workers
from evorl.util.types import Count, Positive


@dataclass(frozen=True, kw_only=True)
class Processes(Cluster):
    """Workers in processes of this machine, forked from a process that has everything imported."""

    in_process: ClassVar[bool] = False

    workers: Count = 2
    """Number of processes, at most one for each member. Results do not depend on it."""
    deadline_s: Positive = 120.0
    """Seconds without a sign after which a worker counts as hung and is replaced."""

    def spawn(self, make: Make, size: int, plain: Sequence[type[Exception]] = ()) -> Group:
        from evorl.cluster.processes.launcher import ProcessLauncher
        from evorl.cluster.workers.descriptors import require_descriptors
        from evorl.cluster.workers.group import RemoteGroup

        require_descriptors(workers := used_workers(self.workers, size))
        return RemoteGroup(ProcessLauncher(make, workers), size, self.deadline_s, plain)
