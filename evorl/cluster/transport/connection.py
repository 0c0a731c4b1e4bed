"""The two ends of a conversation: what is packed once and sent to many, and messages that come in their order."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any, TypeVar

import msgspec

from evorl.cluster.transport.shared_memory import BlockPool, Reader
from evorl.cluster.transport.wire import MAX_BODY, Bulk, Header, Kind, Packed, ProtocolError, unpack

MIN_SHARED_BYTES = 1 << 15  # bytes: smaller bulks are cheaper inside the message
BATCH_BYTES = 1 << 16  # bytes of bodies: about so many go in one message
PLACE = struct.Struct("<II")  # the sender's file descriptor of a block, and the block's number

T = TypeVar("T")


class Payload:
    """A value packed once, to be sent to one or many: its body, and its arrays beside it or in shared memory."""

    def __init__(self, value: object, pool: BlockPool | None = None, reusable: Iterable[Payload] = ()) -> None:
        """Shares the block of one of the ``reusable`` payloads of this pool that has the same arrays: to compare takes as
        long as to copy, so that pays only where a copy has far to go. Raises TypeError for what cannot be sent."""
        self._pool = pool
        self.block: int | None = None
        self._write(value, reusable)

    def rewrite(self, value: object) -> None:
        """Something else from now on. Raises TypeError for what cannot be sent."""
        former, self.block = self.block, None
        self._write(value)
        if former is not None and self._pool is not None:
            self._pool.release(former)

    def add_user(self) -> None:
        """It has one reader more."""
        if self.block is not None and self._pool is not None:
            self._pool.add_user(self.block)

    def release(self) -> None:
        """It has one reader less, at first one."""
        if self.block is not None and self._pool is not None:
            self._pool.release(self.block)

    def arrays_only(self) -> Payload:
        """A payload of the arrays alone."""
        bare = copy(self)
        bare.body = Packed(None).body
        return bare

    def _has_content(self, packed: Packed) -> bool:
        return self.size == packed.size and packed.equals(memoryview(self._bulk))

    def _write(self, value: object, reusable: Iterable[Payload] = ()) -> None:
        packed, pool = Packed(value), self._pool
        self.body, self.size = packed.body, packed.size
        self._bulk: bytes | memoryview = b""
        self._place = b""
        if packed.size and (pool is None or packed.size < MIN_SHARED_BYTES):
            self._bulk = packed.bulk()
        elif (
            pool is not None and (same := next((one for one in reusable if one._has_content(packed)), None)) is not None
        ):
            self.block, self._bulk, self._place = same.block, same._bulk, same._place
            pool.add_user(self.block or 0)
        elif packed.size and pool is not None:
            self.block, block = pool.acquire()
            self._bulk = block.view(packed.size)
            packed.write(self._bulk)
            self._place = PLACE.pack(block.fd, self.block)

    def bulk(self, shared: bool) -> tuple[Bulk, list[bytes | memoryview]]:
        """Where the arrays are for one who does or does not share our memory, and the frame that says or holds it."""
        if not self.size:
            return Bulk.NONE, []
        return (Bulk.SHARED, [self._place]) if shared and self._place else (Bulk.FRAME, [self._bulk])


def messages(parts: Iterable[tuple[T, Payload]]) -> Iterator[tuple[list[T], Payload]]:
    """Envelopes and payloads in their order, as few messages: one with arrays goes alone, the others go together."""
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
    """The list of what these hold; arrays, where one is alone."""
    whole = copy(payloads[0])
    whole.body = msgspec.msgpack.encode([msgspec.Raw(one.body) for one in payloads])
    return whole


class Connection:
    """One end of the conversation between a driver and a worker: numbers what it sends, checks what it gets."""

    def __init__(self, token: bytes, worker: int, life: int) -> None:
        self.token, self.worker, self.life = token, worker, life
        self.sent = 0
        self.received = 0

    def pack(
        self, kind: Kind, envelope: object, payload: Payload, shared: bool = True, place: bytes = b""
    ) -> list[Any]:
        """The frames of the next message: header, envelope (plain data), body and, where there is one, bulk.

        ``shared``: the one it goes to can read this process's memory; ``place``: where it finds the arrays otherwise.
        """
        self.sent += 1
        where, bulk = (Bulk.HELD, [place]) if place else payload.bulk(shared)
        header = Header(kind, self.token, self.worker, self.life, self.sent, where, payload.size)
        return [header.pack(), Packed(envelope).body, payload.body, *bulk]

    def check(self, frames: list[bytes]) -> Header:
        """The header of the message that comes next; `accept` it once it is read. Raises `ProtocolError`."""
        if not 3 <= len(frames) <= 4 or max(len(frames[1]), len(frames[2])) > MAX_BODY:
            raise ProtocolError(f"{len(frames)} frames of {[len(frame) for frame in frames]} bytes")
        header = Header.unpack(frames[0])
        if (header.token, header.worker, header.life) != (self.token, self.worker, self.life):
            raise ProtocolError("another group's message, or a former worker's")
        if header.number != self.received + 1:
            raise ProtocolError(f"message {header.number} after {self.received}")
        if (header.bulk != Bulk.NONE) != (len(frames) == 4):
            raise ProtocolError("the bulk is not where the header says")
        if header.bulk == Bulk.FRAME and len(frames[3]) != header.size:
            raise ProtocolError(f"a bulk of {len(frames[3])} bytes where {header.size} were announced")
        return header

    def accept(self, header: Header) -> None:
        """A message was whole: from now on its number is a former one."""
        self.received = header.number


def bulk(header: Header, frames: list[bytes], reader: Reader | None) -> tuple[Any, int | None]:
    """A message's bulk, and the number of the sender's block that holds it. Raises `ProtocolError`.

    ``reader`` knows the sender's blocks; None before the sender has said which process it is.
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
    """Plain data and arrays as one string of bytes."""
    packed = Packed(value)
    return len(packed.body).to_bytes(8, "little") + packed.body + bytes(packed.bulk())


def loads(content: bytes) -> Any:
    """What `dumps` was given. Raises `ProtocolError`."""
    length = 8 + int.from_bytes(content[:8], "little")
    return unpack(content[8:length], content[length:])
