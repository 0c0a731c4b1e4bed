"""The receiver of a worker on another host than the driver's: a thread that receives while the worker runs calls.

It has its own connection to the driver, and a `Relay` for what comes from other hosts' receivers. It stores broadcast
arrays in shared memory, keeps the copy of the group's feed, and forwards both to further hosts. So neither its host nor
the hosts behind it wait for a call of its worker, which may take minutes. Every such worker has a receiver, but the
driver uses only one of each host for what the host stores.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Any

import msgspec
import zmq

from evorl.cluster.core import FeedReader
from evorl.cluster.transport.broadcast_relay import NO_RELAY, Broadcast, Relay, Route
from evorl.cluster.transport.connection import Connection, Payload, loads
from evorl.cluster.transport.shared_memory import BlockPool
from evorl.cluster.transport.wire import Bulk, Kind, ProtocolError, cut, unpack


class Receiver:
    """A thread with its sockets. All methods but `start`, `check` and `close` run in it."""

    def __init__(
        self, socket: zmq.Socket[bytes], relay: Relay | None, connection: Connection, reader: FeedReader | None
    ) -> None:
        """``socket``: to the driver; ``relay``: None if other hosts cannot reach this one."""
        self.socket, self.relay, self.connection, self.reader = socket, relay, connection, reader
        self.address, self.secret = (NO_RELAY, b"") if relay is None else (relay.address, relay.secret)
        self.released: deque[int] = deque()
        """Blocks that the driver does not need any more; the worker's thread appends to it."""
        self._block_pool = BlockPool()
        self._position: Any = None  # how much of the feed its copy holds
        self._fd = -1  # of the block with this copy
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Raise the error that has ended the thread, if one has."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread, and close its sockets."""
        os.eventfd_write(self._stop, 1)
        if self._thread.is_alive():
            self._thread.join()
        if self.relay is not None:
            self.relay.close()
        self.socket.close()
        os.close(self._stop)

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            self._error = error

    def _serve(self) -> None:
        poller, relay = zmq.Poller(), self.relay
        of_relay = () if relay is None else (relay.socket, *relay.authenticator.sockets)
        for source in (self.socket, self._stop, *of_relay):
            poller.register(source, zmq.POLLIN)
        self._send(Kind.RECEIVING, None)
        while self._stop not in dict(poller.poll()):
            while relay is not None and (broadcast := relay.receive()) is not None:
                try:
                    self._take(broadcast)
                except ProtocolError:  # another worker has spoilt it; not confirmed, it is sent again
                    relay.refuse()
            self._receive()
            if relay is not None and any(counts := relay.new_counts()):
                self._send(Kind.RELAY_COUNTS, counts)

    def _receive(self) -> None:
        """Handle all messages of the driver."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            header = self.connection.check(frames)
            self.connection.accept(header)
            envelope = unpack(frames[1])
            if header.kind in (Kind.BROADCAST, Kind.FOLLOW) and header.bulk == Bulk.FRAME:
                number, send_number, routes = msgspec.convert(envelope, tuple[int, int, list[Route]])
                self._take(Broadcast(header.kind, number, send_number, routes, [frames[3]]))
            elif header.kind == Kind.LOCATE:
                self._locate(*msgspec.convert(envelope, tuple[int, int]))
            else:
                raise ProtocolError(f"a driver does not send {header.kind.name} to a receiver")

    def _take(self, broadcast: Broadcast) -> None:
        """Forward a broadcast, and store it for this host."""
        if self.relay is not None:
            self.relay.forward(broadcast)
        if broadcast.kind == Kind.FOLLOW:
            self._follow(broadcast.send_number, b"".join(broadcast.content))
        else:
            while self.released:
                self._block_pool.release(self.released.popleft())
            number, block = self._block_pool.acquire()
            view, at = block.view(sum(map(len, broadcast.content))), 0
            for piece in broadcast.content:
                view[at : at + len(piece)] = piece
                at += len(piece)
            self._send(Kind.STORED, [broadcast.number, block.fd, number])

    def _follow(self, send_number: int, content: bytes) -> None:
        """Store a piece of the feed if it is the next one; tell the driver what the copy holds."""
        parts = loads(content)
        if not isinstance(parts, list) or len(parts) != 3:
            raise ProtocolError("not a piece of a feed")
        before, after, piece = parts
        if self.reader is None:
            raise ProtocolError("a piece of a feed, which no member reads")
        if before == self._position:  # else it was sent again, or the former piece was lost
            self._position, self._fd = after, self.reader.follow(piece)
        self._send(Kind.FOLLOWED, [send_number, self._position, self._fd])

    def _locate(self, pid: int, fd: int) -> None:
        try:
            if self.reader is not None:
                self.reader.locate(pid, fd)
        except (OSError, ValueError):  # the process that keeps it has ended
            if pid == os.getpid():
                raise
            self._send(Kind.LOCATED, [pid, fd, False])
        else:
            self._send(Kind.LOCATED, [pid, fd, True])

    def _send(self, kind: Kind, envelope: Any) -> None:
        self.socket.send_multipart(cut(self.connection.pack(kind, envelope, Payload(None))))
