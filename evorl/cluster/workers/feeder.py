"""The driver's side of a feed (`evorl.cluster.core.Feed`): one copy on each other host, which follows piece by piece.

A piece goes down the tree to all hosts whose copies hold the same. Each host confirms it before it gets the next one. A
piece that is not confirmed in time was lost on its way: the driver sends it again, directly. A worker whose receiver
does not confirm that within the group's deadline counts as hung. When the process that keeps a copy has ended, another
one of its host begins a new copy.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from evorl.cluster.core import Feed, Position
from evorl.cluster.transport.connection import Payload, dumps
from evorl.cluster.transport.wire import Kind, ProtocolError
from evorl.cluster.workers import host_tree
from evorl.cluster.workers.handle import Call, WorkerHandle
from evorl.cluster.workers.host_tree import MIN_BYTES_PER_S, HostTree, Send


@dataclass(slots=True)
class HostCopy:
    """The copy of the feed on one host."""

    keeper: WorkerHandle
    life: int  # of the keeper
    position: Position | None = None  # that it holds for certain
    fd: int = -1  # the keeper's; -1 before the first piece
    send_number: int = 0  # of the piece that it has not confirmed yet; 0: none
    former: str | None = None  # the host that this piece comes from; None: the driver
    deadline: float = 0.0  # for this piece; infinite if it was sent directly
    lost: bool = False  # this piece: it is to be sent again

    @property
    def place(self) -> tuple[int, int]:
        return self.keeper.pid, self.fd


class Feeder:
    """Sends a feed to other hosts, and records what their copies hold."""

    def __init__(self, tree: HostTree, send: Send) -> None:
        self.feed: Feed | None = None
        self._tree, self._send = tree, send
        self._copies: dict[str, HostCopy] = {}

    def position(self) -> Position | None:
        """Return how much of the feed there is; None if there is nothing."""
        return None if self.feed is None else self.feed.position()

    def update(self) -> None:
        """Send the next piece to every host that lacks one and has confirmed the last one."""
        if self.feed is None or not self._tree:
            return
        ready = defaultdict[tuple[bool, Position | None], dict[str, WorkerHandle]](dict)
        for host, keeper in self._tree.receivers().items():
            copy = self._copies.get(host)
            if copy is None or (copy.keeper, copy.life) != (keeper, keeper.life):
                copy = self._copies[host] = HostCopy(keeper, keeper.life)
            if not copy.send_number or copy.lost:
                ready[copy.lost, copy.position][host] = keeper
        for (lost, known), hosts in ready.items():
            if (found := self.feed.after(known)) is not None:
                self._send_piece(known, *found, hosts, lost)

    def _send_piece(
        self, known: Position | None, position: Position, piece: object, hosts: dict[str, WorkerHandle], lost: bool
    ) -> None:
        payload = Payload(np.frombuffer(dumps([known, position, piece]), np.uint8))
        send_number, paths = self._tree.send(Kind.FOLLOW, 0, hosts, payload, direct=hosts if lost else ())
        now = time.monotonic()
        for host, former in paths.items():
            copy = self._copies[host]
            copy.send_number, copy.former, copy.lost = send_number, former, False
            patience = host_tree.TIMEOUT_S + payload.size / MIN_BYTES_PER_S
            copy.deadline = float("inf") if former is None else now + patience
            copy.keeper.awaited_since = copy.keeper.awaited_since or now

    # -------------------------------------------------------------- confirmations

    def confirm(self, handle: WorkerHandle, send_number: int, position: Position | None, fd: int) -> None:
        """Record what a worker's copy holds. Raises `ProtocolError` if that is more than there is."""
        there = self.position()
        if position is not None and (there is None or len(position) != len(there) or position > there):
            raise ProtocolError(f"a copy of {position}, but the feed has {there}")
        copy = self._copies.get(handle.host)
        if copy is None or (copy.keeper, copy.life) != (handle, handle.life):
            return
        if position is not None and (copy.position is None or position > copy.position):
            copy.position = position
        if fd >= 0:
            copy.fd = fd
        if send_number == copy.send_number:
            copy.send_number, copy.lost, handle.awaited_since = 0, False, 0.0
        for one in self._tree.workers_of(handle.host):
            self.show(one)

    def show(self, handle: WorkerHandle) -> None:
        """Tell a worker where the copy of its host lies, if it does not know."""
        copy = self._copies.get(handle.host)
        if copy is not None and copy.fd >= 0 and handle.shown != copy.place:
            handle.shown, handle.located = copy.place, False
            self._send(handle, Kind.LOCATE, copy.place, Payload(None))

    def confirm_located(self, handle: WorkerHandle, place: tuple[int, int], found: bool) -> None:
        """Record whether a worker has mapped the copy at ``place``; if it could not, it keeps a copy itself."""
        if place != handle.shown:
            return
        handle.located = found
        copy = self._copies.get(handle.host)
        if not found and copy is not None and copy.place == place:
            self.remove_keeper(copy.keeper)
            self._tree.choose(handle)

    def overdue(self) -> bool:
        """Mark pieces that were lost on their way; return whether there are any.

        A host that did not get its piece from another host gets later ones directly from the driver.
        """
        now = time.monotonic()
        late = {host: copy for host, copy in self._copies.items() if copy.send_number and now > copy.deadline}
        for copy in late.values():
            copy.lost = True
        self._tree.mark_late({*late}, {host: copy.former for host, copy in late.items()})
        return bool(late)

    def remove_keeper(self, handle: WorkerHandle) -> None:
        """Forget the copy of a host whose keeper has ended."""
        copy = self._copies.get(handle.host)
        if copy is not None and copy.keeper is handle:
            del self._copies[handle.host]
            handle.awaited_since = 0.0

    def is_pending(self, handle: WorkerHandle, call: Call) -> bool:
        """Return whether a call waits for the copy on its worker's host, or for the worker to find it."""
        if call.position is None:
            return False
        copy = self._copies.get(handle.host)
        has = copy is not None and copy.position is not None and copy.position >= call.position
        return not (has and copy is not None and handle.located and handle.shown == copy.place)
