"""The message format between the driver of a group and its workers.

A message has a fixed header, an envelope, a body and at most one bulk. The header identifies the sender. The envelope
describes one or several calls or answers, and the body has one entry for each. The body is msgpack: numbers, text,
lists, maps and references to arrays, nothing else. The bulk holds the arrays' bytes one after the other; it is either
a further frame or in shared memory. Reading a message never executes or imports anything: any other form raises
`ProtocolError`.

    header: magic 4 | version 2 | kind 1 | where the bulk is 1 | token 16 | worker 4 | life 4 | number 8 | bulk bytes 8

``token`` is drawn for each group and secret to its processes. ``life`` counts the processes that have run as this
worker. ``number`` increases by one with each message of a sender, so that replayed and lost messages are detected.
"""

from __future__ import annotations

import math
import struct
import sys
from enum import IntEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]

MAGIC, VERSION = b"EVRL", 7
HEADER = struct.Struct("<4sHBB16sIIQQ")
REFERENCE = 1  # code of the only msgpack extension: an array in the bulk
ALIGN = 64  # bytes: alignment of arrays in a bulk
MAX_BODY = 1 << 28  # bytes
MAX_BULK = 1 << 40  # bytes
MAX_FRAME = 1 << 32  # bytes
MAX_DIMENSIONS = 32
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
    SHARED = 2  # in the sender's shared memory, at the place that the last frame names
    HELD = 3  # in the shared memory of another worker on the receiver's host


class Header(NamedTuple):
    kind: Kind
    token: bytes
    worker: int
    life: int
    number: int
    bulk: Bulk = Bulk.NONE
    size: int = 0  # bytes of the bulk

    def pack(self) -> bytes:
        return HEADER.pack(
            MAGIC, VERSION, self.kind, self.bulk, self.token, self.worker, self.life, self.number, self.size
        )

    @classmethod
    def unpack(cls, frame: bytes) -> Header:
        """Parse a header. Raises `ProtocolError`."""
        if len(frame) != HEADER.size:
            raise ProtocolError(f"a header of {len(frame)} bytes")
        magic, version, kind, bulk, token, worker, life, number, size = HEADER.unpack(frame)
        if magic != MAGIC or version != VERSION:
            raise ProtocolError(f"magic {magic!r}, version {version}; expected {MAGIC!r}, version {VERSION}")
        if size > MAX_BULK:
            raise ProtocolError(f"a bulk of {size} bytes")
        try:
            return cls(Kind(kind), token, worker, life, number, Bulk(bulk), size)
        except ValueError as error:
            raise ProtocolError(str(error)) from None


class Packed:
    """A value encoded for sending: its body, and its arrays, which are not copied yet."""

    def __init__(self, value: object) -> None:
        """Encode ``value``. Raises TypeError for anything but plain data, NumPy arrays and torch tensors."""
        self.arrays: list[tuple[int, Array]] = []  # offset in the bulk, array
        self.size = 0
        try:
            self.body = msgspec.msgpack.encode(value, enc_hook=self._encode_array)
        except (ValueError, OverflowError, RecursionError) as error:  # not Unicode, beyond 64 bits, recursive
            raise TypeError(f"{type(error).__name__}: {error}") from None
        if len(self.body) > MAX_BODY:
            raise TypeError(f"{len(self.body)} bytes of plain data are too many to send; use arrays for large data")

    def _encode_array(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        torch_dtype = ""
        if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
            torch_dtype = str(value.dtype).removeprefix("torch.")
            value = value.detach().cpu().contiguous()
            value = (value.view(torch.uint16) if torch_dtype == "bfloat16" else value).numpy()
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} cannot be sent; plain data, arrays and tensors can")
        if value.dtype.newbyteorder("<").str not in _DTYPES:
            raise TypeError(f"arrays of {value.dtype} cannot be sent")
        start = self.size
        # no copy if contiguous; unlike ascontiguousarray, 0-d arrays keep their shape
        array = np.asarray(value, value.dtype.newbyteorder("<"), order="C")
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
    try:
        decoder = _decoder(form, memoryview(bulk).cast("B"), copy) if len(bulk) else _without_bulk(form)
        return decoder.decode(body)
    except ProtocolError:
        raise
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise ProtocolError(f"{type(error).__name__}: {error}") from None


def _decoder(form: Any, bulk: memoryview, copy: bool) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(form, ext_hook=partial(_decode_array, bulk, copy))


@cache
def _without_bulk(form: Any) -> msgspec.msgpack.Decoder[Any]:
    return _decoder(form, memoryview(b""), True)


def _decode_array(bulk: memoryview, copy: bool, code: int, data: memoryview) -> Any:
    """Return the array of a reference. Raises `ProtocolError`."""
    if code != REFERENCE:
        raise ProtocolError(f"unknown msgpack extension {code}")
    start, name, shape, torch_dtype = msgspec.msgpack.decode(data, type=tuple[int, str, tuple[int, ...], str])
    dtype = _DTYPES.get(name)
    if dtype is None or len(shape) > MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise ProtocolError(f"an array of {name!r} and shape {shape}")
    count = math.prod(shape)
    if not 0 <= start <= start + count * dtype.itemsize <= len(bulk):
        raise ProtocolError(f"{shape} of {name} at {start} is not within {len(bulk)} bytes")
    view = np.frombuffer(bulk, dtype, count, start) if count else np.empty(0, dtype)
    as_view = not copy and not (torch_dtype and bulk.readonly)  # torch does not support read-only memory
    array = (view if as_view else view.copy()).reshape(shape)
    return _to_tensor(array, torch_dtype) if torch_dtype else array


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


def _to_tensor(array: Array, dtype: str) -> torch.Tensor:
    import torch

    tensor = torch.from_numpy(array)
    if dtype == "bfloat16" and array.dtype == np.uint16:
        return tensor.view(torch.bfloat16)
    if str(tensor.dtype) != f"torch.{dtype}":
        raise ProtocolError(f"a tensor of {dtype!r} in {array.dtype}")
    return tensor
