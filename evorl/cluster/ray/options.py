"""The config keys of ``cluster=ray``, which the launcher and the session read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evorl.cluster.ray.address import host_port
from evorl.util.errors import BadRequest
from evorl.util.types import Count, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Keys of ``conf/cluster/ray.yaml``."""

    workers: Count = 2
    """Number of processes, at most one for each member. Results do not depend on it."""
    deadline_s: Positive = 120.0
    """Seconds without a sign after which a worker counts as hung and is replaced."""
    address: str | None = None
    """The Ray cluster to join: auto for the one that this machine is part of, or its head's host[:port] (IPv6
    addresses in brackets). null starts a Ray on this machine that ends with the run."""
    cpus: NonNegative = 1.0
    """CPUs that Ray sets aside for each worker."""
    gpus: NonNegative = 0.0
    """GPUs that Ray sets aside for each worker."""
    placement: Literal["spread", "pack"] = "spread"
    """Place workers on as many machines as possible (spread) or on as few (pack)."""

    def __post_init__(self) -> None:
        for key, amount in (("cpus", self.cpus), ("gpus", self.gpus)):
            if amount != round(amount, 4):
                raise BadRequest(f"Ray counts in steps of 0.0001, and {amount:g} lies between two", key)
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise BadRequest(f"a worker has a part of one GPU or whole ones, not {self.gpus:g}", "gpus")
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
