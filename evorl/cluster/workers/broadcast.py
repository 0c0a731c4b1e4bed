"""The driver's side of broadcasts: send arrays to the workers of other hosts, one copy to each host that lacks them.

The arrays of a call to all members are one broadcast. On each host one worker receives broadcasts
(`evorl.cluster.workers.receiver`), and the driver records which of these workers stores which broadcast. Calls go to
every worker directly and name the place of the arrays on its host. If a worker on the way dies, hangs or cannot be
reached, its confirmation is missing; the driver then sends call and arrays together, as for small arrays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import count

from evorl.cluster.transport.broadcast_relay import HELD
from evorl.cluster.transport.connection import Payload
from evorl.cluster.transport.shared_memory import BlockPool
from evorl.cluster.transport.wire import Kind
from evorl.cluster.workers import host_tree
from evorl.cluster.workers.handle import WorkerHandle
from evorl.cluster.workers.host_tree import MIN_BYTES_PER_S, HostTree, Paths, path_of

MAX_STORED = 4  # broadcasts that every host stores


class Broadcaster:
    """Sends broadcasts, and records which of them other hosts store or still wait for."""

    def __init__(self, pool: BlockPool, tree: HostTree) -> None:
        self._pool, self._tree = pool, tree
        self._stored: dict[int, tuple[int, Payload]] = {}  # by the driver's block: number and arrays, the newest last
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        """By worker and number of a broadcast: the worker's file descriptor and block that hold it."""
        self._numbers = count(1)
        self._block: int | None = None  # of the current broadcast
        self._paths: Paths = {}  # of the current broadcast
        self._pending: set[str] = set()  # hosts that have not confirmed it
        self._deadline = 0.0

    def remove_worker(self, handle: WorkerHandle) -> set[str]:
        """Forget a worker that has ended. Return the pending hosts that waited for it: its own and those behind it.

        Calls to their workers do not wait for the current broadcast any more.
        """
        self._places = {key: place for key, place in self._places.items() if key[0] != handle.number}
        if not self._tree.receives(handle):
            return set()
        waiting = {host for host in self._pending if handle.host in path_of(host, self._paths)}
        self._pending -= waiting
        return waiting

    def stored_payloads(self) -> Iterable[Payload]:
        """Return the payloads whose arrays other hosts store, the newest first."""
        return [payload for _, payload in reversed(self._stored.values())] if self._tree else ()

    # -------------------------------------------------------------- sending

    def broadcast(self, payload: Payload) -> None:
        """Send a payload's arrays to all hosts that do not store them."""
        if not self._tree or payload.block is None:
            return
        number = self._store(payload.block, payload)
        receivers = self._tree.receivers().items()
        lacking = {host: handle for host, handle in receivers if (handle.number, number) not in self._places}
        self._block, self._pending = payload.block, {*lacking}
        self._deadline = time.monotonic() + host_tree.TIMEOUT_S + payload.size / MIN_BYTES_PER_S
        _, self._paths = self._tree.send(Kind.BROADCAST, number, lacking, payload.arrays_only())

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
            for handle in self._tree.workers():
                if (place := self._places.pop((handle.number, number), None)) is not None:
                    handle.process.released.append(place[1])
        return self._stored[block][0]

    # -------------------------------------------------------------- confirmations

    def confirm(self, handle: WorkerHandle, number: int, fd: int, block: int) -> None:
        """Record that a worker stores a broadcast."""
        key, wanted = (handle.number, number), number in {stored for stored, _ in self._stored.values()}
        if self._tree.receivers().get(handle.host) is not handle or not wanted or key in self._places:
            handle.process.released.append(block)
            return
        self._places[key] = fd, block
        if self._block is not None and self._stored.get(self._block, (0,))[0] == number:
            self._pending.discard(handle.host)

    def overdue_hosts(self) -> set[str]:
        """Return the hosts whose confirmation is overdue; they are not pending any more.

        A host that did not get the broadcast from another host gets later ones directly from the driver.
        """
        if not self._pending or time.monotonic() < self._deadline:
            return set()
        late, self._pending = self._pending, set()
        self._tree.mark_late(late, self._paths)
        return late

    def is_pending(self, handle: WorkerHandle, payload: Payload) -> bool:
        """Return whether a payload's arrays are being sent to a worker's host."""
        return payload.block is not None and payload.block == self._block and handle.host in self._pending

    def location(self, handle: WorkerHandle, payload: Payload) -> bytes:
        """Return the place of a payload's arrays on a worker's host; empty if the host does not store them."""
        number, _ = self._stored.get(payload.block, (0, None)) if payload.block is not None else (0, None)
        receiver = self._tree.receivers().get(handle.host) if number else None
        place = None if receiver is None else self._places.get((receiver.number, number))
        return b"" if receiver is None or place is None else HELD.pack(receiver.process.pid, place[0])

    def close(self) -> None:
        self._stored.clear()
