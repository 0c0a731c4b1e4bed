"""The workers of other hosts, of which one on each receives for its host, and the tree of sends to these receivers.

A send goes from the driver to at most `FAN_OUT` hosts, and from these on to further hosts
(`evorl.cluster.transport.broadcast_relay`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count

from evorl.cluster.transport.broadcast_relay import Broadcast, branches, signed_routes
from evorl.cluster.transport.connection import Payload
from evorl.cluster.transport.wire import Kind
from evorl.cluster.workers.handle import WorkerHandle

log = logging.getLogger("evorl")

TIMEOUT_S, MIN_BYTES_PER_S = 1.0, 10e6  # a send down the tree may take this time, plus its size at this rate

Send = Callable[[WorkerHandle, Kind, object, Payload], None]
"""Sends a message to a worker's receiver."""
Paths = Mapping[str, str | None]
"""The host that sends to each host; None: the driver."""


class HostTree:
    """Which workers other hosts have, and who receives for each host."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._hosts: dict[str, dict[int, WorkerHandle]] = {}  # workers of each host except the driver's
        self._receivers: dict[str, WorkerHandle] = {}
        self._numbers = count(1)
        self._direct_only: set[str] = set()  # hosts that other hosts could not reach

    def __bool__(self) -> bool:
        """Whether there are workers on other hosts."""
        return bool(self._hosts)

    def add_worker(self, handle: WorkerHandle) -> None:
        """Add a worker on another host, if it is not known yet."""
        others = self._hosts.setdefault(handle.host, {})
        if handle.number not in others:
            others[handle.number] = handle
            self._direct_only.discard(handle.host)

    def remove_worker(self, handle: WorkerHandle) -> None:
        """Remove a worker that has ended."""
        others = self._hosts.get(handle.host, {})
        others.pop(handle.number, None)
        if not others:
            self._hosts.pop(handle.host, None)
        if self.receives(handle):
            del self._receivers[handle.host]

    def workers(self) -> list[WorkerHandle]:
        """Return all workers of other hosts."""
        return [handle for others in self._hosts.values() for handle in others.values()]

    def workers_of(self, host: str) -> list[WorkerHandle]:
        return [*self._hosts.get(host, {}).values()]

    def receivers(self) -> dict[str, WorkerHandle]:
        """Return the worker that receives for each host."""
        return {host: self._receivers.setdefault(host, next(iter(own.values()))) for host, own in self._hosts.items()}

    def receives(self, handle: WorkerHandle) -> bool:
        """Return whether a worker receives for its host."""
        return self._receivers.get(handle.host) is handle

    def choose(self, handle: WorkerHandle) -> None:
        """Let a worker receive for its host."""
        self._receivers[handle.host] = handle

    # -------------------------------------------------------------- sending

    def send(self, kind: Kind, number: int, hosts: Mapping[str, WorkerHandle], payload: Payload) -> tuple[int, Paths]:
        """Send a payload to the receivers of these hosts. Return the number of this send, and the way to each host."""
        send_number, paths = next(self._numbers), dict[str, str | None]()
        broadcast = Broadcast(kind, number, send_number, [], [])
        alone = {*self._direct_only, *(host for host, handle in hosts.items() if not handle.process.relay.endpoint)}
        tree = branches([host for host in hosts if host not in alone])
        for host, beyond in [*tree, *((host, ()) for host in hosts if host in alone)]:
            _record_paths(paths, None, host, beyond)
            receivers = [(hosts[further].process.relay, hosts[further].process.secret) for further in beyond]
            routes = signed_routes(broadcast, payload.digest(), receivers) if receivers else []
            self._send(hosts[host], kind, (number, send_number, routes), payload)
        return send_number, paths

    def mark_late(self, late: Collection[str], paths: Paths) -> None:
        """Send directly from now on to late hosts whose sender had the send."""
        unreached = {host for host in late if (former := paths[host]) is not None and former not in late}
        if unreached - self._direct_only:
            log.warning("%d hosts cannot be reached by other hosts' workers: sent to directly", len(unreached))
        self._direct_only |= unreached

    def mark_reached(self, host: str) -> None:
        """Send down the tree again to a host that got a send late."""
        self._direct_only.discard(host)


def path_of(host: str | None, paths: Paths) -> Iterator[str]:
    """Yield the hosts on the way of a send to ``host``, ``host`` first."""
    while host is not None:
        yield host
        host = paths[host]


def _record_paths(paths: dict[str, str | None], former: str | None, host: str, beyond: Sequence[str]) -> None:
    paths[host] = former
    for further, rest in branches(beyond):
        _record_paths(paths, host, further, rest)
