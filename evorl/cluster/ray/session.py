"""The connection to Ray: starts or joins it, and reserves resources for workers."""

from __future__ import annotations

import atexit
import logging
import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from evorl.cluster.ray.address import host_port
from evorl.cluster.ray.head import HeadLost, cluster_at, resolved_address
from evorl.cluster.ray.options import RayOptions
from evorl.cluster.ray.own_ray import STORE, RayOwner, main_line, on_loopback
from evorl.cluster.ray.private_files import SocketDirectory
from evorl.util.errors import BadRequest

UNTYPED: Any = ray  # some of its functions have no annotations
DRIVERS = (
    "log_to_driver", "logging_level", "logging_format", "logging_config", "configure_logging", "namespace",
    "runtime_env", "job_config", "ignore_reinit_error", "_driver_object_store_memory", "_skip_env_hook",
)  # fmt: skip
"""Options of ``ray.init`` for the driver; the others are for the Ray that it starts."""

RENEWALS = 3
"""Attempts to start a Ray in place of one that is gone."""


class Session:
    """The run's own Ray, a joined one, or the one that this process is already connected to."""

    def __init__(self, config: RayOptions, workers: int) -> None:
        """Raises `BadRequest` if it does not start, is not reachable or lacks resources."""
        self.config = config
        self.initialized, self._workers = ray.is_initialized(), workers
        self.alone = config.address is None  # all workers are on this machine
        self._sockets = SocketDirectory() if self.alone else None
        self.directory = self._sockets.path if self._sockets is not None else ""
        self.owner: RayOwner | None = None
        self.lost = False  # the head is gone, and no call may go to Ray
        self._group: Any = None
        try:
            with _signals_kept():
                self._open(workers)
            self.ip = str(UNTYPED.util.get_node_ip_address())
            self.head = str(ray.get_runtime_context().gcs_address)
            if self.owner is not None:
                self._check_gpus(workers)
            elif not self.alone:
                self._reserve(workers)
        except BaseException:
            self.close()
            raise

    def _open(self, workers: int) -> None:
        c = self.config
        if self.initialized:
            return self._check_initialized()
        with _errors_as_bad_request(c.address, "cluster.address"):
            if c.address is None:
                cores = math.ceil(workers * c.cpus)
                self.owner = RayOwner({"num_cpus": cores, "object_store_memory": STORE}, self.directory)
                with on_loopback():
                    ray.init(self.owner.address, log_to_driver=False, logging_level=logging.ERROR)
            else:
                ray.init(resolved_address(c.address), log_to_driver=False, logging_level=logging.ERROR)

    def _check_initialized(self) -> None:
        joined, wanted = ray.get_runtime_context().gcs_address, self.config.address
        if wanted in (None, "auto") or host_port(wanted) == host_port(joined):
            return
        # by what the heads say of themselves: one may have several names and addresses
        with _errors_as_bad_request(wanted, "cluster.address"):
            asked = cluster_at(resolved_address(wanted))
        with _errors_as_bad_request(joined, "cluster.address"):
            own = cluster_at(joined)
        if not asked or asked != own:
            raise BadRequest(f"this process is part of the Ray at {joined} already, not of {wanted}", "cluster.address")

    def _check_gpus(self, workers: int) -> None:
        """Raise `BadRequest` if the run's own Ray lacks GPUs; it always declares enough CPUs."""
        each, gpus = self.config.gpus, _total_resources()["GPU"]
        if not each:
            return
        room = gpus * int(1 / each + 1e-9) if each < 1 else gpus // each  # a worker cannot use parts of two GPUs
        if workers > room:
            raise BadRequest(f"this machine has {gpus:g} GPUs; {workers} x {each:g} are needed", "cluster.gpus")

    def _reserve(self, workers: int) -> None:
        """Reserve resources for all workers at once, so that two runs cannot each hold half and wait for the other."""
        c = self.config
        self._group = placement_group([self._needs()] * workers, strategy=c.placement.upper())
        if not self._group.wait(c.deadline_s):
            has = _total_resources()
            raise BadRequest(
                f"no room for {workers} workers of {c.cpus:g} CPUs and {c.gpus:g} GPUs within {c.deadline_s:g} s; the "
                f"cluster has {has['CPU']:g} CPUs and {has['GPU']:g} GPUs",
                "cluster.gpus" if workers * c.gpus > has["GPU"] else "cluster.workers",
            )

    def _needs(self) -> dict[str, float]:
        needs = {"CPU": self.config.cpus, "GPU": self.config.gpus}
        return {name: amount for name, amount in needs.items() if amount} or {"CPU": 0.001}

    def place(self, worker: int, again: bool) -> dict[str, Any]:
        """The options of a worker's actor that decide its machine.

        A worker that is placed ``again`` may have lost its machine: it takes any machine, even a full one, so that the
        run need not wait. One that needs a GPU takes its reserved place, which Ray moves if its machine is gone: beside
        the reserved GPUs there may be none.
        """
        c = self.config
        options: dict[str, Any] = {"num_cpus": c.cpus, "num_gpus": c.gpus}
        if self._group is not None and (c.gpus or not again):
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, worker)
        elif self.alone and self.initialized:
            node = ray.get_runtime_context().get_node_id()
            options |= {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
        elif again:
            options |= {"num_cpus": 0, "scheduling_strategy": "SPREAD" if c.placement == "spread" else "DEFAULT"}
        return options

    def renew(self) -> None:
        """Start another Ray in place of one that is gone. Raises `HeadLost` if none starts in `RENEWALS` attempts."""
        for attempt in range(RENEWALS):
            self._leave(replaced=True)
            try:
                with _signals_kept():
                    return self._open(self._workers)
            except BadRequest as error:  # of the machine, and not of what the user asked for: the run had a Ray
                if attempt + 1 == RENEWALS:
                    self._leave()
                    raise HeadLost(f"the run's own Ray is gone, and no other starts: {error}") from error

    def close(self) -> None:
        if self._group is not None and not self.lost:
            remove_placement_group(self._group)
        self._leave()
        if self._sockets is not None:
            self._sockets.close()

    def _leave(self, replaced: bool = False) -> None:
        if not (self.initialized or self.lost):
            ray.shutdown()
        if self.owner is not None:
            self.owner.close(replaced)
            self.owner = None


def init_ray(key: str, address: str | None, **more: Any) -> None:
    """Call ``ray.init(address, **more)`` if this process is not connected yet; keep the handler of SIGTERM.

    Without an address it starts a Ray that ends with this process. ``ray.init`` would join any Ray on this machine.

    Raises `BadRequest` under ``key`` if Ray does not start or is not reachable.
    """
    if ray.is_initialized():
        return
    with _signals_kept(), _errors_as_bad_request(address, key):
        if own := address in (None, "local"):
            owner = RayOwner({name: more.pop(name) for name in [*more] if name not in DRIVERS})
            atexit.register(_end, owner)
            address = owner.address
        elif "://" not in address:
            address = resolved_address(address)
        with on_loopback() if own else nullcontext():
            UNTYPED.init(address, **{"logging_level": logging.ERROR, **more})


def _end(owner: RayOwner) -> None:
    UNTYPED.shutdown(_exiting_interpreter=True)  # waits for the last output of jobs
    owner.close()


def _total_resources() -> dict[str, float]:
    """The resources of the whole cluster, used or not."""
    resources: dict[str, float] = UNTYPED.cluster_resources()
    return {name: resources.get(name, 0.0) for name in ("CPU", "GPU")}


@contextmanager
def _errors_as_bad_request(address: str | None, key: str) -> Iterator[None]:
    """Turn every error of starting or joining Ray into a `BadRequest`."""
    try:
        yield
    except Exception as error:  # of many kinds, some of them plain RuntimeErrors
        what = "does not start here" if address in (None, "local") else f"at {address} cannot be joined"
        raise BadRequest(f"Ray {what}: {main_line(error)}", key) from error


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the signal handlers that Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
