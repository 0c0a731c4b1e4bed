"""Payloads that are packed once and sent to one or many, and connections that number and check messages."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from evorl.cluster.transport.shared_memory import BlockPool, Reader
from evorl.cluster.transport.wire import ALIGN, PLACE, Bulk, Header, Kind, Packed, ProtocolError, grouped, unpack

MIN_SHARED_BYTES = 1 << 15  # smaller bulks are cheaper inside the message
LENGTHS = struct.Struct("<QQ")  # bytes of a body and of its bulk
BATCH_BYTES = 1 << 16  # approximate limit of the bodies in one message

T = TypeVar("T")
Bytes = NDArray[np.uint8]
"""Bytes as an array [N]."""


class Payload:
    """A value packed once for one or many receivers: its body, and its arrays in a frame or in shared memory."""

    def __init__(self, value: object, pool: BlockPool | None = None, reusable: Iterable[Payload] = ()) -> None:
        """Pack ``value``. Raises TypeError if it cannot be sent.

        If one of the ``reusable`` payloads of this pool has the same arrays, its block is shared. The comparison takes
        as long as a copy, so this pays only if it saves sending the arrays to another host.
        """
        self._pool = pool
        self.block: int | None = None
        self._digest: bytes | None = None
        self._write(value, reusable)

    def rewrite(self, value: object) -> None:
        """Replace the value. Raises TypeError if it cannot be sent."""
        former, self.block = self.block, None
        self._write(value)
        if former is not None and self._pool is not None:
            self._pool.release(former)

    def add_user(self) -> None:
        """Add a user to the block."""
        if self.block is not None and self._pool is not None:
            self._pool.add_user(self.block)

    def release(self) -> None:
        """Remove a user from the block; a new payload has one."""
        if self.block is not None and self._pool is not None:
            self._pool.release(self.block)

    def arrays_only(self) -> Payload:
        """Return a payload with the same arrays and an empty body."""
        bare = copy(self)
        bare.body = Packed(None).body
        return bare

    def digest(self) -> bytes:
        """Return a digest of the arrays, for the driver's signature."""
        if self._digest is None:
            self._digest = digest([self._bulk])
        return self._digest

    def _has_arrays(self, packed: Packed) -> bool:
        return self.size == packed.size and packed.equals(memoryview(self._bulk))

    def _write(self, value: object, reusable: Iterable[Payload] = ()) -> None:
        packed, pool = Packed(value), self._pool
        self.body, self.size = packed.body, packed.size
        self._bulk: bytes | memoryview = b""
        self._place, self._digest = b"", None
        if packed.size and (pool is None or packed.size < MIN_SHARED_BYTES):
            self._bulk = packed.bulk()
        elif pool is not None and (same := next((p for p in reusable if p._has_arrays(packed)), None)) is not None:
            self.block, self._bulk, self._place = same.block, same._bulk, same._place
            pool.add_user(self.block or 0)
        elif packed.size and pool is not None:
            self.block, block = pool.acquire()
            self._bulk = block.view(packed.size)
            packed.write(self._bulk)
            self._place = PLACE.pack(block.fd, self.block)

    def bulk(self, shared: bool) -> tuple[Bulk, list[bytes | memoryview]]:
        """Return the place of the arrays and the frame that holds or references them.

        ``shared``: the receiver can read this process's memory.
        """
        if not self.size:
            return Bulk.NONE, []
        return (Bulk.SHARED, [self._place]) if shared and self._place else (Bulk.FRAME, [self._bulk])


def messages(parts: Iterable[tuple[T, Payload]]) -> Iterator[tuple[list[T], Payload]]:
    """Batch envelopes and payloads, in order, into few messages; a payload with arrays gets its own message."""
    envelopes: list[T] = []
    payloads: list[Payload] = []
    room = BATCH_BYTES
    for envelope, payload in parts:
        if payloads and (payload.size or payloads[-1].size or room < 0):
            yield envelopes, _joined(payloads)
            envelopes, payloads, room = [], [], BATCH_BYTES
        envelopes.append(envelope)
        payloads.append(payload)
        room -= len(payload.body)
    if payloads:
        yield envelopes, _joined(payloads)


def _joined(payloads: list[Payload]) -> Payload:
    """Return a payload with the list of these payloads' bodies; only a single payload may have arrays."""
    joined = copy(payloads[0])
    joined.body = msgspec.msgpack.encode([msgspec.Raw(payload.body) for payload in payloads])
    return joined


def digest(pieces: Iterable[Any]) -> bytes:
    """Return a digest of the pieces of a bulk."""
    hasher = hashlib.blake2b(digest_size=32)
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()


def receiver_name(worker: int, life: int) -> bytes:
    """Return the identity of a worker's receiver at the driver's socket."""
    return b"%d.%d.receiver" % (worker, life)


class Connection:
    """One end of the connection between a driver and a worker: numbers sent messages, checks received ones."""

    def __init__(self, token: bytes, worker: int, life: int) -> None:
        self.token, self.worker, self.life = token, worker, life
        self.sent = 0
        self.received = 0

    def pack(
        self, kind: Kind, envelope: object, payload: Payload, shared: bool = True, place: bytes = b""
    ) -> list[Any]:
        """Return the frames of the next message: header, envelope (plain data), body and, if there are arrays, bulk.

        ``shared``: the receiver can read this process's memory; ``place``: where its host has stored the arrays.
        """
        self.sent += 1
        where, bulk = (Bulk.HELD, [place]) if place else payload.bulk(shared)
        head, body = Packed(envelope).body, payload.body
        own = self.token, self.worker, self.life, self.sent
        return [Header(kind, *own, where, payload.size, len(head), len(body)).pack(), head, body, *bulk]

    def check(self, frames: list[bytes]) -> Header:
        """Return the header of the next message; call `accept` when the message has been read.

        The frames of a cut message become one for each part. Raises `ProtocolError` if it is not the next message of
        this connection.
        """
        if not frames:
            raise ProtocolError("no frames")
        header = Header.unpack(frames[0])
        if (header.token, header.worker, header.life) != (self.token, self.worker, self.life):
            raise ProtocolError("a message of another group or of a former process")
        if header.number != self.received + 1:
            raise ProtocolError(f"message {header.number} after {self.received}")
        if [*map(len, frames[1:])] != header.parts():
            frames[1:] = [b"".join(group) for group in grouped(header, frames[1:])]
        return header

    def accept(self, header: Header) -> None:
        """Mark a message as received; its number is not accepted again."""
        self.received = header.number


def bulk(header: Header, frames: list[bytes], reader: Reader | None) -> tuple[Any, int | None]:
    """Return a message's bulk, and the number of the sender's block that holds it. Raises `ProtocolError`.

    ``reader`` maps the sender's blocks; None before its hello.
    """
    if header.bulk == Bulk.NONE:
        return b"", None
    if header.bulk == Bulk.FRAME:
        return frames[3], None
    if reader is None or header.bulk != Bulk.SHARED:
        raise ProtocolError("shared memory of an unknown process")
    try:
        fd, number = PLACE.unpack(frames[3])
        return reader.view(fd, header.size), number
    except (OSError, ValueError, OverflowError, struct.error) as error:
        raise ProtocolError(f"no such shared memory: {error}") from None


def dumps(value: Any) -> bytes:
    """Serialize plain data and arrays into one string of bytes."""
    packed = Packed(value)
    return LENGTHS.pack(len(packed.body), packed.size) + packed.body + bytes(packed.bulk())


def dumps_array(value: Any) -> Bytes:
    """`dumps` as an array: so it is sent in a bulk, as large as it may be (`evorl.cluster.transport.wire.MAX_BODY`)."""
    return np.frombuffer(dumps(value), np.uint8)


def loads(content: bytes | memoryview) -> Any:
    """Deserialize the output of `dumps`, or what an array in a bulk is aligned to. Raises `ProtocolError`."""
    if len(content) < LENGTHS.size:
        raise ProtocolError(f"{len(content)} bytes")
    body, bulk = LENGTHS.unpack_from(content)
    start = LENGTHS.size + body
    end = start + bulk
    if not 0 <= len(content) - end < ALIGN or any(content[end:]):
        raise ProtocolError(f"{len(content)} bytes for a body of {body} and arrays of {bulk}")
    return unpack(content[LENGTHS.size : start], content[start:end])
