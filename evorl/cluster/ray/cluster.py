"""Workers placed by Ray, on this machine or on a running cluster.

Ray places the workers, reports when one is gone, and transports the factory of the members. Ray pickles whatever it
starts, so anyone who can connect to a Ray cluster can run code on it. Calls and replies use evorl's own sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evorl.cluster.core import Cluster, Group, Make, used_workers
from evorl.cluster.ray.options import RayOptions


@dataclass(frozen=True, kw_only=True)
class Ray(RayOptions, Cluster):
    """Workers in processes that Ray places."""

    in_process: ClassVar[bool] = False

    @property
    def workers_here(self) -> int:
        return self.workers if self.address is None else 1

    @property
    def begins(self) -> str:
        if self.address is None:
            return "members go to a Ray on this machine; to start one takes some seconds"
        return f"joins the Ray {'of this machine' if self.address == 'auto' else f'at {self.address}'}"

    def spawn(self, make: Make, size: int, plain: Sequence[type[Exception]] = ()) -> Group:
        from evorl.cluster.ray.launcher import ActorLauncher
        from evorl.cluster.workers.descriptors import require_descriptors
        from evorl.cluster.workers.group import RemoteGroup

        require_descriptors(workers := used_workers(self.workers, size))
        return RemoteGroup(ActorLauncher(make, workers, self), size, self.deadline_s, plain)
