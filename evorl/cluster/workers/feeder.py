"""The driver's side of a feed (`evorl.cluster.core.Feed`): one copy on each other host, which follows piece by piece.

A piece goes down the tree to all hosts whose copies hold the same. These hosts stay together: none gets its next piece
before the others have confirmed this one, or are late. A late piece that was to come from another host counts as lost
and is sent again. A worker whose receiver does not confirm a piece of the driver's own within the group's deadline
counts as hung. When the process that keeps a copy has ended, another one of its host begins a new copy.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass

from evorl.cluster.core import Feed, MemberLost, Position
from evorl.cluster.transport.connection import Payload, dumps_array
from evorl.cluster.transport.wire import Kind, ProtocolError
from evorl.cluster.workers import host_tree
from evorl.cluster.workers.calls import Call
from evorl.cluster.workers.handle import WorkerHandle
from evorl.cluster.workers.host_tree import MIN_BYTES_PER_S, HostTree, Paths, Send, path_of

MAX_REFUSALS = 20  # workers of one host that cannot map the copy of another, before one of them was replaced


@dataclass(slots=True, eq=False)
class Piece:
    """A piece on its way to some hosts."""

    send_number: int
    paths: Paths
    waiting: set[str]  # hosts that have not confirmed it
    deadline: float
    last: bool  # the copies then hold everything that there was
    late: bool = False  # not all have confirmed it before the deadline

    @property
    def is_awaited(self) -> bool:
        """Whether hosts that have confirmed it wait for the others."""
        return bool(self.waiting) and not self.late


@dataclass(slots=True)
class HostCopy:
    """The copy of the feed on one host."""

    keeper: WorkerHandle
    position: Position | None = None  # that it holds for certain
    fd: int = -1  # the keeper's; -1 before the first piece
    piece: Piece | None = None  # the last that was sent; None: there is none, or it was lost
    current: bool = False  # it confirmed its last piece in time, and had everything then; such hosts stay together

    @property
    def place(self) -> tuple[int, int]:
        """The keeper's process and its file descriptor."""
        return self.keeper.process.pid, self.fd


@dataclass(slots=True)
class Mapping:
    """The copy of its host whose address a worker has."""

    place: tuple[int, int]  # see `HostCopy.place`
    done: bool = False  # it has mapped it


class Feeder:
    """Sends a feed to other hosts, and records what their copies hold."""

    def __init__(self, tree: HostTree, send: Send) -> None:
        self.feed: Feed | None = None
        self._tree, self._send = tree, send
        self._copies: dict[str, HostCopy] = {}
        self._mappings: dict[int, Mapping] = {}  # by worker
        self._refusals = Counter[str]()  # by host, since one of its workers was replaced

    def position(self) -> Position | None:
        """Return how much of the feed there is; None if there is nothing."""
        return None if self.feed is None else self.feed.position()

    # -------------------------------------------------------------- sending

    def update(self) -> None:
        """Send the next piece to every host that lacks one and need not wait for others."""
        if self.feed is None or not self._tree:
            return
        ready = defaultdict[Position | None, dict[str, WorkerHandle]](dict)
        gathering = any(copy.piece.is_awaited for copy in self._copies.values() if copy.current and copy.piece)
        for host, keeper in self._tree.receivers().items():
            copy = self._copies.setdefault(host, HostCopy(keeper))
            waits = copy.piece is not None and (host in copy.piece.waiting or copy.piece.is_awaited)
            if not waits and not (copy.current and gathering):
                ready[copy.position][host] = keeper
        for known, hosts in ready.items():
            if (following := self.feed.after(known)) is not None:
                self._send_piece(known, *following, hosts)

    def _send_piece(
        self, known: Position | None, position: Position, piece: object, hosts: dict[str, WorkerHandle]
    ) -> None:
        payload = Payload(dumps_array([known, position, piece]))
        send_number, paths = self._tree.send(Kind.FOLLOW, 0, hosts, payload)
        deadline = time.monotonic() + host_tree.TIMEOUT_S + payload.size / MIN_BYTES_PER_S
        sent = Piece(send_number, paths, {*hosts}, deadline, position == self.position())
        for host, keeper in hosts.items():
            self._copies[host].piece = sent
            if paths[host] is None:  # else it is the business of other hosts, too, that it does not come
                keeper.process.signs.expect(Kind.FOLLOWED)

    def show(self, handle: WorkerHandle) -> None:
        """Send a worker the address of its host's copy, unless it has it.

        If calls in flight read a former copy, this waits until the new one holds what they read.
        """
        copy, mapping = self._copies.get(handle.host), self._mappings.get(handle.number)
        if copy is None or copy.fd < 0 or (mapping is not None and mapping.place == copy.place):
            return
        reads = handle.calls.in_flight[-1].position if handle.calls.in_flight else None
        if _holds(copy.position, reads):
            self._mappings[handle.number] = Mapping(copy.place)
            handle.process.signs.confirm(Kind.LOCATED)  # of a former copy
            handle.process.signs.expect(Kind.LOCATED)
            self._send(handle, Kind.LOCATE, copy.place, Payload(None))

    def is_pending(self, handle: WorkerHandle, call: Call) -> bool:
        """Return whether a call waits for the copy on its worker's host, or for the worker to find it."""
        if call.position is None:
            return False
        copy, mapping = self._copies.get(handle.host), self._mappings.get(handle.number)
        if copy is None or mapping != Mapping(copy.place, done=True):
            return True
        return not _holds(copy.position, call.position)

    # -------------------------------------------------------------- confirmations

    def confirm(self, handle: WorkerHandle, send_number: int, position: Position | None, fd: int) -> None:
        """Record what a worker's copy holds. Raises `ProtocolError` if that is more than there is."""
        end = self.position() or ()
        if position is not None and not (
            len(position) == len(end) and all(0 <= x <= most for x, most in zip(position, end, strict=True))
        ):
            raise ProtocolError(f"a copy of {position}, but the feed has {end}")
        copy = self._copies.get(handle.host)
        if copy is None or copy.keeper is not handle:
            return
        if not _holds(copy.position, position):
            copy.position = position
        if fd >= 0:
            copy.fd = fd
        if copy.piece is not None and send_number == copy.piece.send_number:
            copy.piece.waiting.discard(handle.host)
            copy.current = copy.piece.last and not copy.piece.late
            handle.process.signs.confirm(Kind.FOLLOWED)
        else:  # it was late, not lost
            self._tree.mark_reached(handle.host)
        for neighbour in self._tree.workers_of(handle.host):
            self.show(neighbour)

    def confirm_located(self, handle: WorkerHandle, place: tuple[int, int], mapped: bool) -> None:
        """Record whether a worker has mapped the copy at ``place``; if it could not, it keeps a copy itself.

        Raises `MemberLost` if the workers of a host cannot map each other's memory.
        """
        mapping = self._mappings.get(handle.number)
        if mapping is None or mapping.place != place:
            return
        mapping.done = mapped
        handle.process.signs.confirm(Kind.LOCATED)
        copy = self._copies.get(handle.host)
        if not mapped and copy is not None and copy.place == place:  # its keeper has ended, as a rule
            self._refusals[handle.host] += 1
            if self._refusals[handle.host] > MAX_REFUSALS:
                raise MemberLost(f"workers of one host ({handle.host}) cannot map each other's memory")
            self._remove_keeper(copy.keeper)
            self._tree.choose(handle)

    # -------------------------------------------------------------- losses

    def mark_overdue(self) -> None:
        """Mark the pieces that are late; those that were to come from another host count as lost.

        A host that did not get its piece from a host that has it gets later ones directly from the driver.
        """
        time_s = time.monotonic()
        for piece in {copy.piece for copy in self._copies.values()} - {None}:
            if piece is not None and piece.waiting and not piece.late and time_s > piece.deadline:
                piece.late = True
                self._tree.mark_late({*piece.waiting}, piece.paths)
                self._lose(piece, {host for host in piece.waiting if piece.paths[host] is not None})

    def _lose(self, piece: Piece, hosts: set[str]) -> None:
        """Record that a piece does not arrive at these hosts."""
        piece.waiting -= hosts
        for host in hosts:
            copy = self._copies.get(host)
            if copy is not None and copy.piece is piece:
                copy.piece, copy.current = None, False

    def remove_worker(self, handle: WorkerHandle) -> None:
        """Forget a worker that has ended, and the copy that it kept; what it was to forward is lost."""
        self._refusals.pop(handle.host, None)
        self._mappings.pop(handle.number, None)
        self._remove_keeper(handle)

    def _remove_keeper(self, handle: WorkerHandle) -> None:
        copy = self._copies.get(handle.host)
        if copy is None or copy.keeper is not handle:
            return
        del self._copies[handle.host]
        handle.process.signs.confirm(Kind.FOLLOWED)
        if copy.piece is not None:
            waiting, paths = copy.piece.waiting, copy.piece.paths
            self._lose(copy.piece, {host for host in waiting if handle.host in path_of(host, paths)})


def _holds(held: Position | None, needed: Position | None) -> bool:
    """Return whether a copy at ``held`` has everything up to ``needed``."""
    return needed is None or (held is not None and held >= needed)
