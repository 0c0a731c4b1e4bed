"""The driver's side of broadcasts: send arrays to the workers of other hosts, one copy to each host that lacks them.

The arrays of a call to all members are one broadcast. On each host one worker receives broadcasts
(`evorl.cluster.transport.broadcast_relay`), and the driver records which of these workers stores which broadcast.
Calls go to every worker directly and name the place of the arrays on its host. If a worker on the way dies, hangs or
cannot be reached, its confirmation is missing; the driver then sends call and arrays together, as for small arrays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from evorl.cluster.transport.broadcast_relay import HELD, Route, branches, sign
from evorl.cluster.transport.connection import Payload
from evorl.cluster.transport.shared_memory import BlockPool
from evorl.cluster.workers.handle import WorkerHandle

log = logging.getLogger("evorl")

MAX_STORED = 4  # broadcasts that every host stores

TIMEOUT_S, MIN_BYTES_PER_S = 1.0, 10e6  # a broadcast may take this time, plus its size at this rate

Send = Callable[[WorkerHandle, tuple[int, int, Sequence[Route]], Payload], None]


@dataclass(slots=True)
class HostReceiver:
    """The worker that receives broadcasts for its host."""

    handle: WorkerHandle
    life: int
    stored: dict[int, tuple[int, int]] = field(default_factory=dict)  # broadcast -> file descriptor, block

    @property
    def is_current(self) -> bool:
        return self.handle.ready and self.handle.life == self.life


class Broadcaster:
    """Sends broadcasts, and records which of them other hosts store or still wait for."""

    def __init__(self, pool: BlockPool, send: Send) -> None:
        self._pool, self._send = pool, send
        self._hosts: dict[str, dict[int, WorkerHandle]] = {}  # workers of each host except the driver's
        self._receivers: dict[str, HostReceiver] = {}
        self._stored: dict[int, tuple[int, Payload]] = {}  # by the driver's block: number and arrays, the newest last
        self._numbers, self._send_numbers = count(1), count(1)
        self._block: int | None = None  # of the current broadcast
        self._source: dict[str, str | None] = {}  # host that sends it to each host; None: the driver
        self._pending: set[str] = set()  # hosts that have not confirmed it
        self._deadline = 0.0
        self._direct_only: set[str] = set()  # hosts that other hosts could not reach

    def add_worker(self, handle: WorkerHandle) -> None:
        """Add a worker on another host."""
        self._hosts.setdefault(handle.host, {})[handle.number] = handle
        self._direct_only.discard(handle.host)

    def remove_worker(self, handle: WorkerHandle) -> set[str]:
        """Remove a worker that has ended.

        The broadcasts that it stored are lost. Return its host and the hosts behind it in the tree, as far as they are
        pending; calls to their workers do not wait for the current broadcast any more.
        """
        others = self._hosts.get(handle.host, {})
        others.pop(handle.number, None)
        if not others:
            self._hosts.pop(handle.host, None)
        receiver = self._receivers.get(handle.host)
        if receiver is None or receiver.handle is not handle:
            return set()
        del self._receivers[handle.host]
        waiting = {host for host in self._pending if handle.host in self._path_of(host)}
        self._pending -= waiting
        return waiting

    def _path_of(self, host: str | None) -> Iterator[str]:
        """Yield the hosts on the path of the current broadcast to ``host``, ``host`` first."""
        while host is not None:
            yield host
            host = self._source[host]

    def stored_payloads(self) -> Iterable[Payload]:
        """Return the payloads whose arrays other hosts store, the newest first."""
        return [payload for _, payload in reversed(self._stored.values())] if self._hosts else ()

    # -------------------------------------------------------------- sending

    def broadcast(self, payload: Payload) -> None:
        """Send a payload's arrays to all hosts that do not store them."""
        if not self._hosts or payload.block is None:
            return
        number = self._store(payload.block, payload)
        receivers = {host: receiver for host in self._hosts if (receiver := self._receiver(host)) is not None}
        lacking = {host: receiver.handle for host, receiver in receivers.items() if number not in receiver.stored}
        self._block, self._source, self._pending = payload.block, {}, {*lacking}
        self._deadline = time.monotonic() + TIMEOUT_S + payload.size / MIN_BYTES_PER_S
        apart = [host for host, handle in lacking.items() if host in self._direct_only or not handle.relay.endpoint]
        tree = branches([host for host in lacking if host not in apart])
        send_number = next(self._send_numbers)
        for host, beyond in [*tree, *((host, ()) for host in apart)]:
            self._record_sources(None, host, beyond)
            handles = [lacking[further] for further in beyond]
            routes = [Route(handle.relay, sign(handle.secret, send_number, number)) for handle in handles]
            self._send(lacking[host], (number, send_number, routes), payload)

    def _record_sources(self, former: str | None, host: str, beyond: Sequence[str]) -> None:
        self._source[host] = former
        for further, rest in branches(beyond):
            self._record_sources(host, further, rest)

    def _receiver(self, host: str) -> HostReceiver | None:
        """Return the worker that receives a host's broadcasts; choose another one if the former has ended."""
        receiver = self._receivers.get(host)
        if receiver is None or not receiver.is_current:
            self._receivers.pop(host, None)
            handle = next((one for one in self._hosts[host].values() if one.ready), None)
            if handle is not None:
                self._receivers[host] = HostReceiver(handle, handle.life)
        return self._receivers.get(host)

    def _store(self, block: int, payload: Payload) -> int:
        """Record a payload as stored and return its number; beyond `MAX_STORED` release the oldest on all hosts."""
        if block in self._stored:
            self._stored[block] = self._stored.pop(block)
        else:
            self._pool.add_user(block)
            self._stored[block] = next(self._numbers), payload
        while len(self._stored) > MAX_STORED:
            oldest = next(iter(self._stored))
            number, _ = self._stored.pop(oldest)
            self._pool.release(oldest)
            for receiver in self._receivers.values():
                if (place := receiver.stored.pop(number, None)) is not None and receiver.is_current:
                    receiver.handle.released.append(place[1])
        return self._stored[block][0]

    # -------------------------------------------------------------- confirmations

    def confirm(self, handle: WorkerHandle, number: int, fd: int, block: int) -> None:
        """Record that a worker stores a broadcast."""
        receiver = self._receivers.get(handle.host)
        wanted = number in {one for one, _ in self._stored.values()}
        if receiver is None or receiver.handle is not handle or not wanted or number in receiver.stored:
            handle.released.append(block)
            return
        receiver.stored[number] = fd, block
        if self._block is not None and self._stored.get(self._block, (0,))[0] == number:
            self._pending.discard(handle.host)

    def overdue_hosts(self) -> set[str]:
        """Return the hosts whose confirmation is overdue; they are not pending any more.

        A host that did not get the broadcast from another host gets later ones directly from the driver.
        """
        if not self._pending or time.monotonic() < self._deadline:
            return set()
        late, self._pending = self._pending, set()
        unreached = {host for host in late if (former := self._source[host]) is not None and former not in late}
        if unreached - self._direct_only:
            log.warning("%d hosts cannot be reached by other hosts' workers: sent to directly", len(unreached))
        self._direct_only |= unreached
        return late

    def workers_of(self, host: str) -> list[WorkerHandle]:
        return [*self._hosts.get(host, {}).values()]

    def is_pending(self, handle: WorkerHandle, payload: Payload) -> bool:
        """Return whether a payload's arrays are being sent to a worker's host."""
        return payload.block is not None and payload.block == self._block and handle.host in self._pending

    def location(self, handle: WorkerHandle, payload: Payload) -> bytes:
        """Return the place of a payload's arrays on a worker's host; empty if the host does not store them."""
        receiver = self._receivers.get(handle.host)
        number, _ = self._stored.get(payload.block, (0, None)) if payload.block is not None else (0, None)
        if receiver is None or not receiver.is_current or number not in receiver.stored:
            return b""
        return HELD.pack(receiver.handle.pid, receiver.stored[number][0])

    def close(self) -> None:
        self._stored.clear()
