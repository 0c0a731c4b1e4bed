"""The driver's side of a feed (`evorl.cluster.core.Feed`): one copy on each other host, which follows piece by piece.

A piece goes down the tree to all hosts whose copies hold the same. These hosts stay together: none gets its next piece
before the others have confirmed this one, or are late. A piece that came from another host and is late was lost on its
way: the driver sends it again, directly. A worker whose receiver gives no confirmation within the group's deadline
counts as hung. When the process that keeps a copy has ended, another one of its host begins a new copy.
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
from evorl.cluster.workers.host_tree import MIN_BYTES_PER_S, HostTree, Paths, Send, path_of


@dataclass(slots=True)
class Piece:
    """A piece on its way to some hosts."""

    send_number: int
    paths: Paths
    waiting: set[str]  # hosts that have not confirmed it
    deadline: float
    last: bool  # the copies then hold everything that there was

    def is_awaited(self) -> bool:
        """Return whether hosts that have confirmed it wait for the others."""
        return bool(self.waiting) and time.monotonic() < self.deadline


@dataclass(slots=True)
class HostCopy:
    """The copy of the feed on one host."""

    keeper: WorkerHandle
    position: Position | None = None  # that it holds for certain
    fd: int = -1  # the keeper's; -1 before the first piece
    piece: Piece | None = None  # the last that was sent
    level: bool = False  # it held everything when it confirmed this piece; hosts that catch up do not delay such ones
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

    # -------------------------------------------------------------- sending

    def update(self) -> None:
        """Send the next piece to every host that lacks one and need not wait for others."""
        if self.feed is None or not self._tree:
            return
        ready = defaultdict[tuple[bool, Position | None], dict[str, WorkerHandle]](dict)
        for host, keeper in self._tree.receivers().items():
            copy = self._copies.get(host)
            if copy is None or copy.keeper is not keeper:
                copy = self._copies[host] = HostCopy(keeper)
            if copy.lost or not self._waits(host, copy):
                ready[copy.lost, copy.position][host] = keeper
        for (lost, known), hosts in ready.items():
            if (found := self.feed.after(known)) is not None:
                self._send_piece(known, *found, hosts, lost)

    def _waits(self, host: str, copy: HostCopy) -> bool:
        """Return whether a host waits: for its own confirmation, or for hosts that are to get their pieces with it."""
        if copy.piece is None:
            return False
        if host in copy.piece.waiting or copy.piece.is_awaited():
            return True
        others = (one.piece for one in self._copies.values() if one.level and one.piece is not None)
        return copy.level and any(piece.is_awaited() for piece in others)

    def _send_piece(
        self, known: Position | None, position: Position, piece: object, hosts: dict[str, WorkerHandle], lost: bool
    ) -> None:
        payload = Payload(np.frombuffer(dumps([known, position, piece]), np.uint8))
        send_number, paths = self._tree.send(Kind.FOLLOW, 0, hosts, payload, direct=hosts if lost else ())
        now = time.monotonic()
        deadline = now + host_tree.TIMEOUT_S + payload.size / MIN_BYTES_PER_S
        sent = Piece(send_number, paths, {*hosts}, deadline, position == self.position())
        for host, keeper in hosts.items():
            copy = self._copies[host]
            copy.piece, copy.lost = sent, False
            keeper.owed.setdefault(Kind.FOLLOWED, now)

    def show(self, handle: WorkerHandle) -> None:
        """Tell a worker where the copy of its host lies, if it does not know.

        A copy that begins anew lacks what calls in flight read from the former one, so these are waited for.
        """
        copy = self._copies.get(handle.host)
        if copy is None or copy.fd < 0 or handle.shown == copy.place:
            return
        reads = handle.sent[handle.in_flight - 1].position if handle.in_flight else None
        if _holds(copy.position, reads):
            handle.shown, handle.located = copy.place, False
            handle.owed[Kind.LOCATED] = time.monotonic()
            self._send(handle, Kind.LOCATE, copy.place, Payload(None))

    def is_pending(self, handle: WorkerHandle, call: Call) -> bool:
        """Return whether a call waits for the copy on its worker's host, or for the worker to find it."""
        if call.position is None:
            return False
        copy = self._copies.get(handle.host)
        if copy is None or not handle.located or handle.shown != copy.place:
            return True
        return not _holds(copy.position, call.position)

    # -------------------------------------------------------------- confirmations

    def confirm(self, handle: WorkerHandle, send_number: int, position: Position | None, fd: int) -> None:
        """Record what a worker's copy holds. Raises `ProtocolError` if that is more than there is."""
        there = self.position() or ()
        if position is not None and not (
            len(position) == len(there) and all(0 <= x <= most for x, most in zip(position, there, strict=True))
        ):
            raise ProtocolError(f"a copy of {position}, but the feed has {there}")
        copy = self._copies.get(handle.host)
        if copy is None or copy.keeper is not handle:
            return
        if not _holds(copy.position, position):
            copy.position = position
        if fd >= 0:
            copy.fd = fd
        if copy.piece is not None and send_number == copy.piece.send_number:
            copy.piece.waiting.discard(handle.host)
            copy.level, copy.lost = copy.piece.last, False
            handle.owed.pop(Kind.FOLLOWED, None)
        for one in self._tree.workers_of(handle.host):
            self.show(one)

    def confirm_located(self, handle: WorkerHandle, place: tuple[int, int], found: bool) -> None:
        """Record whether a worker has mapped the copy at ``place``; if it could not, it keeps a copy itself."""
        if place != handle.shown:
            return
        handle.located = found
        handle.owed.pop(Kind.LOCATED, None)
        copy = self._copies.get(handle.host)
        if not found and copy is not None and copy.place == place:
            self.remove_keeper(copy.keeper)
            self._tree.choose(handle)

    # -------------------------------------------------------------- losses

    def mark_overdue(self) -> None:
        """Mark the pieces that were lost on their way from another host.

        A host that did not get its piece from a host that has it gets later ones directly from the driver.
        """
        now = time.monotonic()
        for piece in {id(copy.piece): copy.piece for copy in self._copies.values()}.values():
            if piece is not None and now > piece.deadline:
                self._tree.mark_late({*piece.waiting}, piece.paths)
                self._lose(piece, {host for host in piece.waiting if piece.paths[host] is not None})

    def _lose(self, piece: Piece, hosts: set[str]) -> None:
        """Record that a piece does not arrive at these hosts."""
        piece.waiting -= hosts
        for host in hosts:
            copy = self._copies.get(host)
            if copy is not None and copy.piece is piece:
                copy.lost, copy.level = True, False

    def remove_keeper(self, handle: WorkerHandle) -> None:
        """Forget the copy of a host whose keeper has ended; what it was to forward is lost."""
        copy = self._copies.get(handle.host)
        if copy is None or copy.keeper is not handle:
            return
        del self._copies[handle.host]
        handle.owed.pop(Kind.FOLLOWED, None)
        if copy.piece is not None:
            waiting, paths = copy.piece.waiting, copy.piece.paths
            self._lose(copy.piece, {host for host in waiting if handle.host in path_of(host, paths)})


def _holds(held: Position | None, asked: Position | None) -> bool:
    """Return whether a copy that holds one position has all up to another."""
    return asked is None or (held is not None and held >= asked)
