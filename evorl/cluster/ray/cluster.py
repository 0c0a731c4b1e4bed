"""Workers placed by Ray, on this machine or on a cluster that runs already.

Ray places the workers, tells when one is gone and carries what makes the members (pickled, as Ray does with whatever
it starts: who may speak to a Ray cluster may run code on it). What members are told and what they answer goes over
our own sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from evorl.cluster.core import Cluster, Group, Make, used_workers
from evorl.cluster.ray.address import host_port
from evorl.util.errors import BadRequest
from evorl.util.types import Count, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class Ray(Cluster):
    """Members in processes that Ray places."""

    in_process: ClassVar[bool] = False

    workers: Count = 2
    """Processes; more than there are members stay away. What comes out does not depend on it."""
    deadline_s: Positive = 120.0
    """Seconds without an answer after which a worker counts as hung and is replaced."""
    address: str | None = None
    """The Ray cluster to join: auto for the one that this machine is part of, or its head's host[:port], where
    an IPv6 address stands in brackets; null starts a Ray of its own on this machine, which ends with the run."""
    cpus: NonNegative = 1.0
    """CPUs that Ray sets aside for each worker."""
    gpus: NonNegative = 0.0
    """GPUs that Ray sets aside for each worker."""
    placement: Literal["spread", "pack"] = "spread"
    """Over as many machines as there are, or as few as they fit on."""

    @property
    def begins(self) -> str:
        if self.address is None:
            return "members go to a Ray on this machine; to start one takes some seconds"
        return f"joins the Ray {'of this machine' if self.address == 'auto' else f'at {self.address}'}"

    def __post_init__(self) -> None:
        if self.address is None:
            return
        if "://" in self.address:
            raise BadRequest(
                f"{self.address} is no address to join: the driver is part of the cluster, so run it on one of its "
                "machines, with auto or the head's host[:port]",
                "address",
            )
        try:
            host_port(self.address)
        except ValueError as error:
            raise BadRequest(str(error), "address") from None

    def spawn(self, make: Make, size: int, plain: Sequence[type[Exception]] = ()) -> Group:
        from evorl.cluster.ray.launcher import Fleet
        from evorl.cluster.workers.group import RemoteGroup

        return RemoteGroup(Fleet(make, used_workers(self.workers, size), self), size, self.deadline_s, plain)
