"""What travels between the driver of a group and its workers.

A message is a fixed header, an envelope, a body and at most one bulk. The header says who speaks, the envelope what
for: it may be several calls, or several answers, and the body has something for each. The body is msgpack (numbers,
text, lists, maps and references to arrays, nothing else); the bulk holds the arrays' bytes one after the other, and
either follows as one more frame or lies in shared memory. Reading a message never executes or imports anything:
whatever is not exactly of this form raises `ProtocolError`.

    header: magic 4 | version 2 | kind 1 | where the bulk is 1 | token 16 | worker 4 | life 4 | number 8 | bulk bytes 8

``token`` is drawn for each group and known to its processes alone; ``life`` counts the processes that a worker's place
has had; ``number`` rises by one with each message of a sender, so a replayed or lost one is noticed.
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

MAGIC, VERSION = b"EVRL", 5
HEADER = struct.Struct("<4sHBB16sIIQQ")
REFERENCE = 1  # code of our one msgpack extension: an array in the bulk
ALIGN = 64  # bytes: where each array of a bulk begins
MAX_BODY = 1 << 28  # bytes
MAX_BULK = 1 << 40  # bytes
MAX_FRAME = 1 << 32  # bytes
MAX_DIMENSIONS = 32
_DTYPES = {
    np.dtype(name).str: np.dtype(name)
    for name in ("bool", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8")
}


Failure = tuple[Annotated[list[str], msgspec.Meta(min_length=1)], str, str]
"""What raised in a member: the names of its classes, message, traceback."""


class ProtocolError(ValueError):
    """A message that is not one of ours, or not whole."""


class Kind(IntEnum):
    """What a message is for."""

    HELLO = 1  # worker: here I am
    MAKE = 2  # driver: make these members, from these states
    CALL = 3  # driver: call a method of these members
    ANSWER = 4  # worker: what a call gave
    STOP = 5  # driver: that was all
    HEARTBEAT = 6  # worker: no answer yet, but one member more is done
    BROADCAST = 7  # driver, or another worker: keep these arrays for your host, and pass them on
    STORED = 8  # worker: here they are
    MISSING = 9  # worker: the arrays of a call are not where they should be
    RELAY_COUNTS = 10  # worker: what has happened at its door


class Bulk(IntEnum):
    """Where the arrays of a message are."""

    NONE = 0
    FRAME = 1  # in the message's last frame
    SHARED = 2  # in the sender's shared memory, where the last frame says
    HELD = 3  # in that of another worker on the receiver's host


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
        """Raises `ProtocolError`."""
        if len(frame) != HEADER.size:
            raise ProtocolError(f"a header of {len(frame)} bytes")
        magic, version, kind, bulk, token, worker, life, number, size = HEADER.unpack(frame)
        if magic != MAGIC or version != VERSION:
            raise ProtocolError(f"magic {magic!r}, version {version}; ours is {MAGIC!r}, version {VERSION}")
        if size > MAX_BULK:
            raise ProtocolError(f"a bulk of {size} bytes")
        try:
            return cls(Kind(kind), token, worker, life, number, Bulk(bulk), size)
        except ValueError as error:
            raise ProtocolError(str(error)) from None


class Packed:
    """A value on its way out: its body, and its arrays not yet copied anywhere."""

    def __init__(self, value: object) -> None:
        """Raises TypeError for anything but plain data, NumPy arrays and torch tensors."""
        self.arrays: list[tuple[int, Array]] = []  # where in the bulk, and what
        self.size = 0
        try:
            self.body = msgspec.msgpack.encode(value, enc_hook=self._encode_array)
        except (ValueError, OverflowError, RecursionError) as error:  # no Unicode, beyond 64 bits, within itself
            raise TypeError(f"{type(error).__name__}: {error}") from None
        if len(self.body) > MAX_BODY:
            raise TypeError(f"{len(self.body)} bytes of plain data are too many to be sent; arrays go beside them")

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
        # the memory itself where it is contiguous; 0-d arrays keep their shape
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
        """Whether a bulk holds these very arrays, bit by bit."""
        return all(
            np.array_equal(np.frombuffer(bulk, np.uint8, array.nbytes, start), array.reshape(-1).view(np.uint8))
            for start, array in self.arrays
            if array.nbytes
        )

    def bulk(self) -> bytes | memoryview:
        """The bulk in memory of its own."""
        whole = memoryview(bytearray(self.size))
        self.write(whole)
        return whole


def unpack(body: bytes, bulk: Any = b"", copy: bool = True, form: Any = Any) -> Any:
    """The value of a body and its bulk, of the type ``form``; arrays are copies, or views of the bulk.

    Tensors are copies where the bulk is read-only.

    Tuples come as lists where the form does not say otherwise. Raises `ProtocolError`.
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
    """The array that a reference stands for. Raises `ProtocolError`."""
    if code != REFERENCE:
        raise ProtocolError(f"extension {code} is none of ours")
    start, name, shape, torch_dtype = msgspec.msgpack.decode(data, type=tuple[int, str, tuple[int, ...], str])
    dtype = _DTYPES.get(name)
    if dtype is None or len(shape) > MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise ProtocolError(f"an array of {name!r} and shape {shape}")
    count = math.prod(shape)
    if not 0 <= start <= start + count * dtype.itemsize <= len(bulk):
        raise ProtocolError(f"{shape} of {name} at {start} is not within {len(bulk)} bytes")
    seen = np.frombuffer(bulk, dtype, count, start) if count else np.empty(0, dtype)
    lent = not copy and not (torch_dtype and bulk.readonly)  # torch knows no memory that is only read
    whole = (seen if lent else seen.copy()).reshape(shape)
    return _to_tensor(whole, torch_dtype) if torch_dtype else whole


def check_outcomes(outcomes: list[tuple[bool, Any]], count: int) -> None:
    """Raises `ProtocolError` for anything but ``count`` outcomes: (True, answer) or (False, `Failure`)."""
    if len(outcomes) != count:
        raise ProtocolError(f"{len(outcomes)} outcomes of {count} members")
    for fine, content in outcomes:
        if not fine:
            try:
                msgspec.convert(content, Failure)
            except msgspec.ValidationError as error:
                raise ProtocolError(f"a failure that is none: {error}") from None


def _to_tensor(array: Array, dtype: str) -> torch.Tensor:
    import torch

    tensor = torch.from_numpy(array)
    if dtype == "bfloat16" and array.dtype == np.uint16:
        return tensor.view(torch.bfloat16)
    if str(tensor.dtype) != f"torch.{dtype}":
        raise ProtocolError(f"a tensor of {dtype!r} in {array.dtype}")
    return tensor
