"""The message format between the driver of a group and its workers.

A message has a fixed header, an envelope, a body and at most one bulk. The header identifies the sender. The envelope
describes one or several calls or answers, and the body has one entry for each. The body is msgpack: numbers, text,
lists, maps and references to arrays, nothing else. The bulk holds the arrays' bytes one after the other; it is either
a further frame or in shared memory. Reading a message never executes or imports anything: any other form raises
`ProtocolError`.

    header: magic 4 | version 2 | kind 1 | where the bulk is 1 | token 16 | worker 4 | life 4 | number 8 | bulk bytes 8
            | envelope bytes 4 | body bytes 4

Envelope, body and bulk are one frame each. To a socket that takes connections they are sent in pieces of `PIECE` bytes
(`cut`, `grouped`), because such a socket buffers one frame of a peer before it knows the peer.

Every value has one form. What msgpack could say otherwise is refused: other extensions (timestamps), repeated keys,
numbers and lengths in more bytes than they need. The arrays lie in the bulk in the order of their references, each at
the next multiple of `ALIGN`, and fill it; so no byte is read twice.

``token`` is drawn for each group and secret to its processes. ``life`` counts the processes that have run as this
worker. ``number`` increases by one with each message of a sender, so that replayed and lost messages are detected.
"""

from __future__ import annotations

import math
import struct
import sys
import threading
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]

MAGIC, VERSION = b"EVRL", 9
HEADER = struct.Struct("<4sHBB16sIIQQII")
REFERENCE = 1  # code of the only msgpack extension: an array in the bulk
ALIGN = 64  # bytes: alignment of arrays in a bulk
MAX_BODY = 1 << 28  # bytes
MAX_BULK = 1 << 40  # bytes
PIECE = 1 << 16  # bytes
MAX_FRAME = PIECE + 1024  # bytes that a socket which takes connections accepts: a piece, and what encryption adds
MAX_DIMENSIONS = 32
PLACE = struct.Struct("<II")  # of a bulk in shared memory: see `Bulk`
TIMESTAMPS = b"\xd6\xff", b"\xd7\xff", b"\xc7\x0c\xff"  # how those of msgpack begin
_EMPTY = memoryview(b"")
_REFERENCES = msgspec.msgpack.Decoder(tuple[int, str, tuple[int, ...], str])
_PLAIN = msgspec.msgpack.Decoder(ext_hook=lambda code, data: None)  # leaves out the arrays
_DTYPES = {
    np.dtype(name).str: np.dtype(name)
    for name in ("bool", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8")
}


Failure = tuple[Annotated[list[str], msgspec.Meta(min_length=1)], str, str]
"""An error of a member: the names of its class and base classes, message, traceback."""


class ProtocolError(ValueError):
    """A message that does not have the expected form, or is incomplete."""


class Kind(IntEnum):
    """The type of a message, with its sender."""

    HELLO = 1  # worker: it has started
    MAKE = 2  # driver: make these members, from these states
    CALL = 3  # driver: call a method of these members
    ANSWER = 4  # worker: outcomes of calls
    STOP = 5  # driver: close the members and exit
    HEARTBEAT = 6  # worker: no answer yet, but one more member is done
    BROADCAST = 7  # driver or worker: store these arrays for the receiver's host and forward them
    STORED = 8  # worker: where it has stored broadcast arrays
    MISSING = 9  # worker: the arrays of a call are not at the announced place
    RELAY_COUNTS = 10  # worker: messages that its relay refused and bytes that it forwarded
    FOLLOW = 11  # driver or worker: store this piece of the feed for the receiver's host and forward it
    FOLLOWED = 12  # worker: how much of the feed its host's copy holds, and where it lies
    LOCATE = 13  # driver: where the copy of the feed on the receiver's host lies
    LOCATED = 14  # worker: whether it has mapped that copy
    RECEIVING = 15  # worker: its receiver has started


class Bulk(IntEnum):
    """The place of a message's arrays."""

    NONE = 0
    FRAME = 1  # in the message's last frame
    SHARED = 2  # in the sender's shared memory; the last frame names its file descriptor, and the block's number
    HELD = 3  # in that of another worker on the receiver's host; the last frame names the process, and its descriptor


class Header(NamedTuple):
    kind: Kind
    token: bytes
    worker: int
    life: int
    number: int
    bulk: Bulk = Bulk.NONE
    size: int = 0  # bytes of the bulk
    envelope: int = 0  # bytes
    body: int = 0  # bytes

    def pack(self) -> bytes:
        kind, token, worker, life, number, bulk, *sizes = self
        return HEADER.pack(MAGIC, VERSION, kind, bulk, token, worker, life, number, *sizes)

    @classmethod
    def unpack(cls, frame: bytes) -> Header:
        """Parse a header. Raises `ProtocolError`."""
        if len(frame) != HEADER.size:
            raise ProtocolError(f"a header of {len(frame)} bytes")
        magic, version, kind, bulk, token, worker, life, number, size, envelope, body = HEADER.unpack(frame)
        if magic != MAGIC or version != VERSION:
            raise ProtocolError(f"magic {magic!r}, version {version}; expected {MAGIC!r}, version {VERSION}")
        if size > MAX_BULK or max(envelope, body) > MAX_BODY or (size == 0) != (bulk == Bulk.NONE):
            raise ProtocolError(f"a bulk of {size} bytes at place {bulk}, an envelope of {envelope}, a body of {body}")
        try:
            return cls(Kind(kind), token, worker, life, number, Bulk(bulk), size, envelope, body)
        except ValueError as error:
            raise ProtocolError(str(error)) from None

    def parts(self) -> list[int]:
        """Return the bytes of each part that follows the header: envelope, body and, if there is one, bulk."""
        sizes = [self.envelope, self.body]
        if self.bulk != Bulk.NONE:
            sizes.append(self.size if self.bulk == Bulk.FRAME else PLACE.size)
        return sizes


def cut(frames: list[Any]) -> list[Any]:
    """Cut the parts of a message, which follow its header, into pieces for a socket that takes connections."""
    if max(map(len, frames)) <= PIECE:
        return frames
    pieces = [frames[0]]
    for frame in frames[1:]:
        part = memoryview(frame)
        pieces += [part[at : at + PIECE] for at in range(0, len(part) or 1, PIECE)]
    return pieces


def grouped(header: Header, frames: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the frames of each part of a message; ``frames`` follow the header. Raises `ProtocolError`."""
    groups, at = list[Sequence[Any]](), 0
    for size in header.parts():
        whole = at < len(frames) and len(frames[at]) == size
        group = frames[at : at + (1 if whole else -(-size // PIECE))]
        if not whole and [*map(len, group)] != [*[PIECE] * (len(group) - 1), size - PIECE * (len(group) - 1)]:
            raise ProtocolError(f"frames of {[len(frame) for frame in frames]} bytes for parts of {header.parts()}")
        groups.append(group)
        at += len(group)
    if at != len(frames):
        raise ProtocolError(f"{len(frames) - at} frames too many")
    return groups


class Packed:
    """A value encoded for sending: its body, and its arrays, which are not copied yet."""

    def __init__(self, value: object) -> None:
        """Encode ``value``. Raises TypeError for anything but plain data, NumPy arrays and torch tensors.

        The receiver gets lists for tuples and sets, maps for dataclasses, and text for dates without a time zone.
        """
        self.arrays: list[tuple[int, Array]] = []  # offset in the bulk, array
        self.size = 0
        try:
            self.body = msgspec.msgpack.encode(value, enc_hook=self._encode_array)
            timed = _may_have_time(self.body) and _has_time(_PLAIN.decode(self.body))
        except (ValueError, OverflowError, RecursionError) as error:  # not Unicode, beyond 64 bits, recursive
            raise TypeError(f"{type(error).__name__}: {error}") from None
        if len(self.body) > MAX_BODY:
            raise TypeError(f"{len(self.body)} bytes of plain data are too many to send; use arrays for large data")
        if timed:
            raise TypeError("times with a time zone cannot be sent; their text or timestamp can")

    def _encode_array(self, value: Any) -> Any:
        torch_dtype = ""
        if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
            torch_dtype = str(value.dtype).removeprefix("torch.")
            value = _to_array(value)
        if not isinstance(value, np.ndarray | np.generic):
            raise TypeError(f"{type(value).__name__} cannot be sent; plain data, arrays and tensors can")
        text = isinstance(value, np.str_ | np.bytes_)
        if not text and value.dtype.newbyteorder("<").str not in _DTYPES:
            raise TypeError(f"arrays of {value.dtype} cannot be sent")
        if isinstance(value, np.generic):
            return value.item()
        if value.ndim > MAX_DIMENSIONS:
            raise TypeError(f"arrays of {value.ndim} dimensions cannot be sent; {MAX_DIMENSIONS} are the most")
        start = self.size
        # no copy if contiguous; unlike ascontiguousarray, 0-d arrays keep their shape
        array = np.asarray(value, value.dtype.newbyteorder("<"), order="C")
        if array.dtype == np.bool_ and not _are_bools(array):
            raise TypeError("a bool array whose bytes are neither 0 nor 1 cannot be sent")
        self.arrays.append((start, array))
        self.size = -(-(start + array.nbytes) // ALIGN) * ALIGN
        reference = (start, array.dtype.str, array.shape, torch_dtype)
        return msgspec.msgpack.Ext(REFERENCE, msgspec.msgpack.encode(reference))

    def write(self, into: memoryview) -> None:
        """Copy the arrays into a bulk of ``size`` bytes."""
        for start, array in self.arrays:
            if array.nbytes:
                np.copyto(np.frombuffer(into, np.uint8, array.nbytes, start), array.reshape(-1).view(np.uint8))

    def equals(self, bulk: memoryview) -> bool:
        """Return whether a bulk holds the same arrays, bit by bit."""
        return all(
            np.array_equal(np.frombuffer(bulk, np.uint8, array.nbytes, start), array.reshape(-1).view(np.uint8))
            for start, array in self.arrays
            if array.nbytes
        )

    def bulk(self) -> bytes | memoryview:
        """Return the bulk in newly allocated memory."""
        content = memoryview(bytearray(self.size))
        self.write(content)
        return content


def unpack(body: bytes | memoryview, bulk: Any = b"", copy: bool = True, form: Any = Any) -> Any:
    """Decode a body and its bulk into a value of the type ``form``. Raises `ProtocolError`.

    Arrays are copies with ``copy``, else views of the bulk; tensors of a read-only bulk are always copies. Tuples are
    decoded as lists unless ``form`` has tuples.
    """
    decoders = _decoders.__dict__
    decoder = decoders.get(form)
    if decoder is None:
        decoder = decoders[form] = _Decoder(form)
    try:
        return decoder.decode(body, bulk, copy)
    except ProtocolError:
        raise
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise ProtocolError(f"{type(error).__name__}: {error}") from None


class _Decoder:
    """Decodes bodies of one form, one after the other."""

    def __init__(self, form: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(form, ext_hook=self._array)
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._reference)
        self._bulk, self._copy = _EMPTY, True
        self._end = 0  # bytes of the bulk that references have named
        self._references = deque[msgspec.msgpack.Ext]()
        self._any = "typing.Any" in str(form)  # else its types leave no place for a time

    def decode(self, body: bytes | memoryview, bulk: Any, copy: bool) -> Any:
        self._references.clear()
        if not len(bulk):
            value = self._decoder.decode(body)
        else:
            self._bulk, self._copy, self._end = memoryview(bulk).cast("B"), copy, 0
            try:
                value = self._decoder.decode(body)
                if self._end != len(self._bulk):
                    raise ProtocolError(f"arrays of {self._end} bytes in a bulk of {len(self._bulk)}")
            finally:
                self._bulk, self._end = _EMPTY, 0
        # a value has one form, so what another form was decoded to becomes other bytes
        encoded = self._encoder.encode(value)
        if encoded != body or (self._any and _may_have_time(encoded) and _has_time(value)):
            raise ProtocolError("not the form in which this value is sent")
        return value

    def _array(self, code: int, data: memoryview) -> Any:
        """Return the array of a reference. Raises `ProtocolError`."""
        if code != REFERENCE:
            raise ProtocolError(f"unknown msgpack extension {code}")
        self._references.append(msgspec.msgpack.Ext(code, bytes(data)))
        array, self._end = _array_at(self._end, self._bulk, self._copy, data)
        return array

    def _reference(self, value: Any) -> Any:
        """Return the reference of the next decoded array."""
        return self._references.popleft()


_decoders = threading.local()  # by form, of each thread


def _array_at(start: int, bulk: memoryview, copy: bool, data: memoryview) -> tuple[Any, int]:
    """Return the array that a reference names at ``start``, and where the next one is. Raises `ProtocolError`."""
    named, name, shape, torch_dtype = reference = _REFERENCES.decode(data)
    dtype = _DTYPES.get(name)
    if dtype is None or len(shape) > MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise ProtocolError(f"an array of {name!r} and shape {shape}")
    count = math.prod(shape)
    size = count * dtype.itemsize
    if named != start or start + size > len(bulk):
        raise ProtocolError(f"{shape} of {name} at {named} is not at {start} within {len(bulk)} bytes")
    if msgspec.msgpack.encode(reference) != data:
        raise ProtocolError("not the form of a reference")
    view = np.frombuffer(bulk, dtype, count, start) if count else np.empty(0, dtype)
    if dtype == np.bool_ and not _are_bools(view):
        raise ProtocolError("a bool that is neither 0 nor 1")
    as_view = not copy and not (torch_dtype and bulk.readonly)  # torch does not support read-only memory
    array = (view if as_view else view.copy()).reshape(shape)
    return _to_tensor(array, torch_dtype) if torch_dtype else array, -(-(start + size) // ALIGN) * ALIGN


def _are_bools(array: Array) -> bool:
    """Return whether each byte of a bool array is 0 or 1."""
    return not array.tobytes().translate(None, b"\0\1")


def _may_have_time(body: bytes) -> bool:
    """Return whether a body could have a msgpack timestamp; fast."""
    return b"\xff" in body and any(mark in body for mark in TIMESTAMPS)


def _has_time(value: Any) -> bool:
    """Return whether a value has a msgpack timestamp, of which msgspec makes a time."""
    if isinstance(value, dict):
        return any(_has_time(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple):
        return any(_has_time(item) for item in value)
    return isinstance(value, datetime)


def check_outcomes(outcomes: list[tuple[bool, Any]], count: int) -> None:
    """Check ``count`` outcomes: (True, answer) or (False, `Failure`). Raises `ProtocolError`."""
    if len(outcomes) != count:
        raise ProtocolError(f"{len(outcomes)} outcomes of {count} members")
    for succeeded, content in outcomes:
        if not succeeded:
            try:
                msgspec.convert(content, Failure)
            except msgspec.ValidationError as error:
                raise ProtocolError(f"malformed failure: {error}") from None


def _to_array(tensor: torch.Tensor) -> Array:
    """Return a tensor's numbers; those of bfloat16 as uint16. Raises TypeError for a sparse one and its like."""
    import torch

    try:
        tensor = tensor.detach().cpu().contiguous()
        array: Array = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    except RuntimeError as error:
        raise TypeError(f"a tensor cannot be sent: {error}") from None
    return array


def _to_tensor(array: Array, dtype: str) -> torch.Tensor:
    import torch

    tensor = torch.from_numpy(array)
    if dtype == "bfloat16" and array.dtype == np.uint16:
        return tensor.view(torch.bfloat16)
    if str(tensor.dtype) != f"torch.{dtype}":
        raise ProtocolError(f"a tensor of {dtype!r} in {array.dtype}")
    return tensor
