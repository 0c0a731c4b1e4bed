"""A socket to a game that takes and gives whole messages without blocking.

A message is preceded by its length, 4 bytes, little-endian. A peer that begins with ``GET`` speaks WebSocket instead
(`evorl.mdp.remote.websocket`): as a length these letters would be beyond any limit.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Protocol

from evorl.mdp.remote.messages import MAX_FRAME, MAX_HELLO, Cut, Nonsense
from evorl.mdp.remote.websocket import WebSocket

LENGTH = struct.Struct("<I")
PIECE = 1 << 16
"""Bytes of one read: a larger buffer is mapped and unmapped by each read, which takes six times as long."""
MAX_PASS = 1 << 22
"""Bytes that one peer may send before others are read, too."""
MAX_UNSENT = 1 << 24
"""Bytes that may wait for a peer that does not read."""


class Framing(Protocol):
    @property
    def closed(self) -> bool:
        """Whether the peer has said that it closes the connection."""
        ...

    def frames(self, buffer: bytearray, limit: int) -> list[bytes]:
        """Take the whole frames from the start of a buffer. Raises `Nonsense`."""
        ...

    def framed(self, message: bytes) -> bytes: ...

    def replies(self) -> bytes:
        """What the framing itself has to say."""
        ...


class Lengths:
    """Messages with their lengths."""

    closed = False

    def frames(self, buffer: bytearray, limit: int) -> list[bytes]:
        frames, at, end = list[bytes](), 0, len(buffer)
        while end - at >= 4:
            (size,) = LENGTH.unpack_from(buffer, at)
            if not 0 < size <= limit:
                raise Nonsense(f"announced a message of {size:,} bytes; 1 to {limit:,} may be")
            if end - at - 4 < size:
                break
            frames.append(bytes(memoryview(buffer)[at + 4 : at + 4 + size]))
            at += 4 + size
        del buffer[:at]
        return frames

    def framed(self, message: bytes) -> bytes:
        return LENGTH.pack(len(message)) + message

    def replies(self) -> bytes:
        return b""


PLAIN = Lengths()


class Link:
    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.limit = connected, MAX_HELLO
        self._framing: Framing | None = None
        self._read, self._unsent = bytearray(), bytearray()

    def trust(self) -> None:
        """Allow longer messages."""
        self.limit = MAX_FRAME

    def receive(self) -> list[bytes]:
        """Return the messages that have arrived. Raises `Cut`, `Nonsense`."""
        self.check_open()
        taken = 0
        while taken < MAX_PASS:
            try:
                piece = self.socket.recv(PIECE)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                raise Cut(f"the connection broke ({error.strerror})") from None
            if not piece:
                if taken:
                    break  # the next call says so; what came before counts
                raise Cut("closed the connection")
            self._read += piece
            taken += len(piece)
            if len(piece) < PIECE:
                break
        if self._framing is None:
            if len(self._read) < 4:
                return []
            self._framing = WebSocket() if self._read.startswith(b"GET ") else Lengths()
        frames = self._framing.frames(self._read, self.limit)
        with suppress(Cut):  # the next call says so; what came before counts
            if replies := self._framing.replies():
                self._write(replies)
        if not frames:
            self.check_open()
        return frames

    def check_open(self) -> None:
        """Raise `Cut` if the peer has said that it closes the connection. The socket need not tell it any more."""
        if self._framing is not None and self._framing.closed:
            raise Cut("closed the connection")

    def send(self, message: bytes) -> None:
        """Send a message, now or later, or never to a peer that has closed. Raises `Cut` if too much waits already."""
        framing = self._framing or PLAIN
        if not framing.closed:
            self._write(framing.framed(message))

    def _write(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            self.flush()
        elif (sent := self._taken(data)) < len(data):
            self._unsent += memoryview(data)[sent:]
        if len(self._unsent) > MAX_UNSENT:
            raise Cut("does not read what it is sent")

    @property
    def unsent(self) -> bool:
        return bool(self._unsent)

    def flush(self) -> None:
        """Send what still waits, as far as the socket takes it. Raises `Cut`."""
        while self._unsent and (sent := self._taken(self._unsent)):
            del self._unsent[:sent]

    def _taken(self, data: bytes | bytearray) -> int:
        """Offer data to the socket; return how many bytes it takes. Raises `Cut`."""
        try:
            return self.socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise Cut(f"the connection broke ({error.strerror})") from None

    def close(self) -> None:
        self.socket.close()
