"""The message format: every value survives a round trip, and all other input raises ProtocolError at low cost."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evorl.cluster.transport.connection import Connection, Payload, bulk, dumps, loads
from evorl.cluster.transport.wire import (
    HEADER,
    MAX_BODY,
    MAX_BULK,
    MAX_DIMENSIONS,
    PIECE,
    Bulk,
    Header,
    Kind,
    Packed,
    ProtocolError,
    check_outcomes,
    unpack,
)
from evorl.cluster.transport.wire import cut as in_pieces

TOKEN = bytes(range(16))
DTYPES = ["bool", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8"]
PLAIN = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])) | st.binary()
)  # fmt: skip
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4))
)
VALUES = st.recursive(
    PLAIN | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abä€", max_size=3), inner, max_size=4),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equal in type and in every bit."""
    if isinstance(a, np.ndarray):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, list):
        return type(b) is list and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(b) is dict and [*a] == [*b] and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)


# ------------------------------------------------------------------ round trips


@given(VALUES)
def test_values_survive_a_round_trip(value: Any) -> None:
    packed = Packed(value)
    for copy in (True, False):
        assert same(unpack(packed.body, packed.bulk(), copy), value)
    assert same(loads(dumps(value)), value)


@given(VALUES)
def test_messages_survive_a_round_trip(value: Any) -> None:
    sender, receiver = Connection(TOKEN, 3, 1), Connection(TOKEN, 3, 1)
    for _ in range(3):
        header, got = read(receiver, [bytes(frame) for frame in sender.pack(Kind.CALL, [1, "x"], Payload(value))])
        assert same(got, [[1, "x"], value])
        assert header.kind == Kind.CALL


@given(hnp.arrays("f4", (6, 5, 4)), st.permutations(range(3)), st.integers(-3, 3).filter(bool))
def test_arrays_of_any_layout_survive_a_round_trip(array: Any, order: list[int], stride: int) -> None:
    seen = array.transpose(order)[::stride]
    assert same(loads(dumps(seen)), np.ascontiguousarray(seen))


def test_views_share_the_bulk_and_copies_do_not() -> None:
    packed = Packed([np.zeros(4), torch.zeros(3)])
    whole = packed.bulk()
    (array, tensor), copies = unpack(packed.body, whole, copy=False), unpack(packed.body, whole)
    array[:], tensor[:] = 1, 2
    again = unpack(packed.body, whole)
    assert again[0].tolist() == [1] * 4
    assert again[1].tolist() == [2] * 3
    assert copies[0].tolist() == [0] * 4


def test_tensors_keep_their_types() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.uint8, torch.bool):
        for shape in ((), (0, 2), (3, 2)):
            sent = torch.ones(shape).to(dtype)
            back = loads(dumps({"x": sent}))["x"]
            assert (back.dtype, back.shape) == (dtype, sent.shape)
            assert torch.equal(back, sent)


def test_numpy_scalars_become_plain_numbers() -> None:
    assert loads(dumps([np.float32(0.5), np.int64(-3), np.bool_(True)])) == [0.5, -3, True]


def endless() -> list[Any]:
    whole: list[Any] = []
    whole.append(whole)
    return whole


def nested(value: Any, times: int) -> Any:
    for _ in range(times):
        value = [value]
    return value


@dataclass
class Dated:
    began: datetime


@pytest.mark.parametrize(
    "value",
    [
        object(), print, 1j, 1 << 64, -(1 << 63) - 1, "\ud800", endless(), np.longdouble(1), np.array([1j]),
        np.array([None]), np.array(["a"]), np.array([(1, 2.0)], "i4,f8"), torch.zeros(2, dtype=torch.complex64),
        np.array(["2020"], "M8[D]"), np.datetime64("2020"), datetime.now(UTC), {datetime.now(UTC)},
        Dated(datetime.now(UTC)),
        np.zeros([1] * (MAX_DIMENSIONS + 1)), np.full(2, 7, "u1").view("bool"), torch.eye(2).to_sparse(),
        torch.zeros(2, device="meta"), nested(b"\xd6\xff0000", 480),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_that_cannot_be_sent_raise_type_error(value: Any) -> None:
    for packed in (value, [1, {"a": value}]):
        with pytest.raises(TypeError):
            Packed(packed)


class Side(Enum):
    LEFT = "left"


@pytest.mark.parametrize(
    ("value", "received"),
    [
        ({3}, [3]), ((1, (2,)), [1, [2]]), (Dated(datetime(2020, 1, 2)), {"began": "2020-01-02T00:00:00"}),
        (Side.LEFT, "left"), ({Side.LEFT: 1}, {"left": 1}),
        (date(2020, 1, 2), "2020-01-02"), (datetime(2020, 1, 2), "2020-01-02T00:00:00"), (np.str_("a"), "a"),
        (b"\xd6\xff0000", b"\xd6\xff0000"), ([b"\xd6\xff0000", np.zeros(1).tolist()], [b"\xd6\xff0000", [0.0]]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_else_is_sent_arrives_as_plain_data(value: Any, received: Any) -> None:
    assert same(loads(dumps(value)), received)


# ------------------------------------------------------------------ refused input


def read(connection: Connection, frames: list[bytes]) -> tuple[Header, list[Any]]:
    header = connection.check(frames)
    memory, _ = bulk(header, frames, None)
    content = [unpack(frames[1]), unpack(frames[2], memory)]
    connection.accept(header)
    return header, content


def message(value: object = None, number: int = 1, **other: Any) -> list[bytes]:
    """Return a message that is valid except for the given fields."""
    payload = Payload(value)
    where, frames = payload.bulk(shared=False)
    fields = {"kind": Kind.ANSWER, "token": TOKEN, "worker": 3, "life": 1, "bulk": where, "size": payload.size}
    fields |= {"envelope": 3, "body": len(payload.body), **other}
    return [Header(number=number, **fields).pack(), Packed([1, []]).body, payload.body, *map(bytes, frames)]


ARRAY = np.arange(10)


def test_the_message_of_these_tests_is_valid() -> None:
    _, content = read(Connection(TOKEN, 3, 1), message(ARRAY))
    assert same(content, [[1, []], ARRAY])


@pytest.mark.parametrize(
    "frames",
    [
        [], [b""], [b"", b"", b""], message()[:2], message(ARRAY)[:3], [*message(), b""], [*message(ARRAY), b""],
        [message()[0][:-1], *message()[1:]],
        [b"EVRK" + message()[0][4:], *message()[1:]],
        message(token=bytes(16)), message(worker=4), message(life=0), message(life=2), message(number=0),
        message(number=2), message(number=(1 << 64) - 1),
        message(ARRAY, size=79), message(ARRAY, size=MAX_BULK), message(ARRAY, bulk=Bulk.NONE),
        message(bulk=Bulk.FRAME), message(ARRAY, bulk=Bulk.SHARED), message(size=MAX_BULK + 1),
        message(size=999), message(ARRAY, bulk=Bulk.NONE, size=0), message(ARRAY, size=0), message(envelope=2),
        message(envelope=4), message(body=0), message(body=2), message(envelope=MAX_BODY + 1),
        message(body=MAX_BODY + 1),
        *([struct.pack("<4sH", b"EVRL", other) + message()[0][6:], *message()[1:]] for other in (1, 2, 8, 10)),
        [message()[0][:6] + b"\x00" + message()[0][7:], *message()[1:]],
        [message()[0][:6] + b"\xff" + message()[0][7:], *message()[1:]],
        [message()[0][:7] + b"\x09" + message()[0][8:], *message()[1:]],
    ],
)  # fmt: skip
def test_malformed_and_foreign_messages_are_refused(frames: list[bytes]) -> None:
    line = Connection(TOKEN, 3, 1)
    with pytest.raises(ProtocolError):
        read(line, frames)
    read(line, message(ARRAY))  # the right one is still accepted


def test_a_message_is_accepted_once_and_in_order() -> None:
    line = Connection(TOKEN, 3, 1)
    sent = Connection(TOKEN, 3, 1)
    one, two, three = ([bytes(frame) for frame in sent.pack(Kind.CALL, None, Payload(i))] for i in range(3))
    read(line, one)
    for wrong in (one, three):
        with pytest.raises(ProtocolError):
            read(line, wrong)
    read(line, two)
    read(line, three)
    with pytest.raises(ProtocolError):
        read(line, two)


# ------------------------------------------------------------------ pieces


@pytest.mark.parametrize("size", [1, PIECE - 3, PIECE - 2, 3 * PIECE, 3 * PIECE + 1])
def test_messages_are_cut_into_pieces_and_joined(size: int) -> None:
    """A body of plain bytes, an envelope and an array of about ``size`` bytes."""
    value, array = bytes(range(256)) * (size // 256) + bytes(size % 256), np.arange(size, dtype=np.uint8)
    sender, receiver = Connection(TOKEN, 3, 1), Connection(TOKEN, 3, 1)
    frames = [bytes(frame) for frame in in_pieces(sender.pack(Kind.CALL, [value], Payload([value, array])))]
    assert max(map(len, frames)) <= PIECE
    assert same(read(receiver, frames)[1], [[value], [value, array]])


LARGE = in_pieces(message(np.arange(PIECE)))


@pytest.mark.parametrize(
    "frames",
    [
        LARGE[:-1], [*LARGE, b""], [*LARGE, b"x"], [*LARGE[:3], LARGE[3][:-1], bytes(LARGE[4]) + b"x", *LARGE[5:]],
        [*LARGE[:3], b"", *LARGE[3:]], [*LARGE[:3], bytes(LARGE[3]) + bytes(LARGE[4]), *LARGE[5:]],
        [LARGE[0], bytes(LARGE[1])[:1], bytes(LARGE[1])[1:], *LARGE[2:]],
        [LARGE[0], bytes(LARGE[1]) + bytes(LARGE[2]), *LARGE[3:]], [LARGE[0], *LARGE[2:], LARGE[1]],
    ],
)  # fmt: skip
def test_other_pieces_are_refused(frames: list[Any]) -> None:
    with pytest.raises(ProtocolError):
        read(Connection(TOKEN, 3, 1), frames)
    read(Connection(TOKEN, 3, 1), [*LARGE])


# ------------------------------------------------------------------ one form of each value


def reference(start: int, dtype: Any, shape: Any, torch_dtype: Any = "") -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(1, msgspec.msgpack.encode((start, dtype, shape, torch_dtype))))


@pytest.mark.parametrize(
    "body",
    [
        reference(0, "<f8", (9,)), reference(1, "<f8", (8,)), reference(-8, "<f8", (1,)), reference(64, "<f8", (1,)),
        reference(0, "<f8", (1 << 63,)), reference(0, "<f8", (1 << 32, 1 << 32)), reference(0, "<f8", (-1,)),
        reference(0, "<f8", (-2, -4)), reference(0, "<f8", (1 << 62, 1 << 62, 1 << 62)), reference(1 << 63, "<f8", ()),
        reference(0, "<f8", (0, 1 << 63)), reference(0, "<f8", (0, 1 << 62, 1 << 62)), reference(0, "<f8", (1,) * 33),
        reference(0, "|O", (1,)), reference(0, "O8", (1,)), reference(0, "<U2", (1,)), reference(0, "<c16", (1,)),
        reference(0, "V8", (1,)), reference(0, "f8,i4", (1,)), reference(0, "", (1,)), reference(0, 8, (1,)),
        reference(0, "<f8", 4), reference(0.5, "<f8", (1,)), reference(0, "<f8", (1.0,)), reference(0, "<f8", (True,)),
        reference(0, "<f8", (1,), "float32"), reference(0, "<f8", (1,), "bfloat16"), reference(0, "<f8", (1,), "load"),
        reference(0, "<u4", (1,), "uint32x"), reference(0, "<f8", (1,), None),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"")), msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"\xc1")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(2, b"x")), msgspec.msgpack.encode(msgspec.msgpack.Ext(-128, b"x")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(1, msgspec.msgpack.encode((0, "<f8", (1,), "", 1)))),
        b"", b"\xc1", b"\x00\x00", b"\xdc", b"\xa5abc", b"\xa2\xff\xff", b"\x81\x90\x80\x80", b"\x81\x80\x01",
        b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01", b"\xdd\x7f\xff\xff\xff" * 5000, b"\x91" * 200_000, b"\x81\x01" * 200_000,
        b"\x93" * 100_000, b"[" * 100_000, b'{"a":' * 10_000, b"\xd6\xff\xff",
    ],
    ids=lambda body: body[:12].hex(),
)  # fmt: skip
def test_malformed_bodies_are_refused_without_allocating(body: bytes) -> None:
    """For any announced size, depth or place, no array is made and no memory is allocated for it."""
    whole = bytes(64)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            unpack(body, whole)
        assert tracemalloc.get_traced_memory()[1] < 50 * (len(body) + 10_000)
    finally:
        tracemalloc.stop()


TIME = b"\xd6\xff\x00\x00\x00\x01"  # 1970-01-01T00:00:01


@pytest.mark.parametrize(
    "body",
    [
        TIME, b"\xd7\xff" + bytes(8), b"\xc7\x0c\xff" + bytes(12), b"\x91" + TIME, b"\x81\xa1a" + TIME,
        b"\x81" + TIME + b"\x01", b"\x92\x91\xc0\x81\x01\x92\xc0" + TIME,
        b"\x82\xa1a\x01\xa1a\x02", b"\x91\x82\x01\xc0\x01\xc0", b"\x82\x01\xc0\xcb\x3f\xf0" + bytes(6) + b"\xc0",
        b"\xcc\x01", b"\xcd\x00\xff", b"\xd0\x01", b"\xd9\x01a", b"\xc5\x00\x01a", b"\xdc\x00\x00", b"\xde\x00\x00",
        b"\xca\x3f\x80\x00\x00",
    ],
    ids=lambda body: body[:12].hex(),
)  # fmt: skip
def test_bodies_that_nothing_is_packed_to_are_refused(body: bytes) -> None:
    """Timestamps, repeated keys (1 and 1.0 are the same), and numbers and lengths in another form than the shortest."""
    for other in (body, memoryview(body)):
        with pytest.raises(ProtocolError):
            unpack(other)


def test_bytes_that_look_like_a_timestamp_are_not_one() -> None:
    for value in (TIME, "\xd6\xff", [bytes(TIME), {"a": TIME * 3}], [-1, 0xD6FF]):
        assert unpack(Packed(value).body) == value


@pytest.mark.parametrize(
    ("references", "size"),
    [
        ([(0, "|u1", (64,), ""), (0, "|u1", (64,), "")], 64), ([(0, "|u1", (64,), "")] * 3000, 64),
        ([(0, "|u1", (128,), ""), (64, "|u1", (64,), "")], 128), ([(64, "|u1", (64,), ""), (0, "|u1", (64,), "")], 128),
        ([(0, "|u1", (1,), ""), (1, "|u1", (1,), "")], 64), ([(64, "|u1", (64,), "")], 128),
        ([(0, "|u1", (64,), "")], 128), ([], 64), ([(0, "|u1", (0,), "")], 64), ([(64, "|u1", (0,), "")], 64),
    ],
)  # fmt: skip
def test_arrays_fill_the_bulk_in_order(references: list[Any], size: int) -> None:
    """No byte belongs to two arrays, or to none but for alignment; so arrays take no more memory than the message."""
    body = msgspec.msgpack.encode([msgspec.Raw(reference(*one)) for one in references])
    with pytest.raises(ProtocolError):
        unpack(body, bytes(size))


def test_bools_are_0_or_1() -> None:
    for dtype in ("", "bool"):
        body = reference(0, "|b1", (3,), dtype)
        assert unpack(body, b"\0\1\0" + bytes(61)).tolist() == [False, True, False]
        for byte in (2, 0x78, 0xFF):
            with pytest.raises(ProtocolError):
                unpack(body, bytes([1, byte, 0]) + bytes(61))


def test_states_have_no_other_bytes() -> None:
    content = dumps([np.arange(3), "x"])
    assert same(loads(content + bytes(63)), [np.arange(3), "x"])  # an array of them in a bulk is aligned
    for other in (content[:-1], content + bytes(64), content + b"\1", b"", content[:15]):
        with pytest.raises(ProtocolError):
            loads(other)


def test_references_have_one_form() -> None:
    inner = b"\x94\xcc\x00\xa3|u1\x91\x01\xa0"  # the start 0 in two bytes
    with pytest.raises(ProtocolError):
        unpack(msgspec.msgpack.encode(msgspec.msgpack.Ext(1, inner)), bytes(64))


RECORDED = {  # bodies that former versions took, found by a fuzzer, and their bulks
    "a repeated key": (
        "9c01ffcf8000000000000000d38000000000000000cb3ff8000000000000df0000000200000000c0c3a2c3a9c4037261779080", 0
    ),
    "a timestamp": (
        "95c70a019400a33c6938920003a0d7ff9400a33c663890a0c709019440a37c62319105a0c7120194cc80a33c6634920302a7666c6f6174"
        "333281a16181a16291c70a0194ccc0a33c69389109a0", 264
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "whole"), RECORDED.values(), ids=RECORDED)
def test_recorded_bodies_are_refused(body: str, whole: int) -> None:
    with pytest.raises(ProtocolError):
        unpack(bytes.fromhex(body), bytes(whole))


def test_a_recorded_header_of_a_bulk_that_is_nowhere_is_refused() -> None:
    former = bytes.fromhex(
        "4556524c07000400000102030405060708090a0b0c0d0e0f00000000000000000200000000000000ffffffff00000000"
    )
    with pytest.raises(ProtocolError, match="48 bytes"):
        Header.unpack(former)
    for size in (1, 0xFFFFFFFF):
        with pytest.raises(ProtocolError, match="at place 0"):
            Header.unpack(Header(Kind.ANSWER, TOKEN, 0, 0, 2, Bulk.NONE, size, 3, 1).pack())


def test_bodies_of_another_form_are_refused() -> None:
    form = tuple[int, list[bytes | None]]
    assert unpack(Packed((1, [None, b"x"])).body, form=form) == (1, [None, b"x"])
    for other in (None, 1, [], [1], [1, [2]], ["1", []], [1, [], 2], {"1": []}, [1.5, []], [True, []]):
        with pytest.raises(ProtocolError):
            unpack(Packed(other).body, form=form)


def test_outcomes_are_answers_or_complete_failures() -> None:
    check_outcomes([(True, object()), (False, [["KeyError"], "x", "trace"])], 2)
    for content in (None, [], "abc", [[], "x", "y"], ["KeyError", "x", "y"], [["K"], "x"], [["K"], 1, "y"], {}):
        with pytest.raises(ProtocolError):
            check_outcomes([(False, content)], 1)
    for count in (0, 2):
        with pytest.raises(ProtocolError):
            check_outcomes([(True, None)], count)


# ------------------------------------------------------------------ mutations


def flip(draw: random.Random, content: bytearray) -> None:
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)


def cut(draw: random.Random, content: bytearray) -> None:
    del content[draw.randrange(len(content)) :]


def insert(draw: random.Random, content: bytearray) -> None:
    at = draw.randrange(len(content) + 1)
    content[at:at] = draw.randbytes(draw.randrange(1, 9))


def announce(draw: random.Random, content: bytearray) -> None:
    """Write a huge size in the place of a size."""
    at = draw.randrange(len(content))
    content[at : at + 5] = bytes([draw.choice(b"\xdd\xdf\xdb\xc6\xc9")]) + b"\xff" * 4


CHANGES: list[Callable[[random.Random, bytearray], None]] = [flip, cut, insert, announce]


def mutated(draw: random.Random, frames: list[bytes]) -> list[bytes]:
    """Return frames with a few changes to their bytes or their number."""
    changed = [bytearray(frame) for frame in frames]
    for _ in range(draw.randrange(1, 4)):
        one = draw.choice(changed or [bytearray(b"x")])
        if one:
            draw.choice(CHANGES)(draw, one)
        if draw.random() < 0.1 and len(changed) > 1:
            draw.choice([changed.pop, lambda: changed.append(bytearray(draw.randbytes(9)))])()
    return [bytes(frame) for frame in changed]


def test_mutated_messages_are_read_or_refused() -> None:
    """A mutated message is refused, or it is another valid message."""
    draw = random.Random(3)
    value = {"a": [1, 2.5, None, "text", b"bytes"], "b": np.arange(30).reshape(5, 6), "c": torch.zeros(3)}
    frames = message(value)
    refused = 0
    for _ in range(20_000):
        try:
            read(Connection(TOKEN, 3, 1), mutated(draw, frames))
        except ProtocolError:
            refused += 1
    assert 10_000 < refused < 20_000


def test_mutated_bodies_and_states_are_read_or_refused() -> None:
    draw = random.Random(4)
    value = {"a": [1, 2.5, None, "text", b"bytes"], "b": np.arange(30).reshape(5, 6), "c": torch.zeros(3)}
    packed, state = Packed(value), dumps(value)
    refused = 0
    for _ in range(20_000):
        for reading in (lambda body: unpack(body, packed.bulk()), loads):
            (changed,) = mutated(draw, [state if reading is loads else packed.body]) or [b""]
            try:
                reading(changed)
            except ProtocolError:
                refused += 1
    assert 10_000 < refused < 40_000


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=80), max_size=5))
def test_noise_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        read(Connection(TOKEN, 3, 1), frames)


@given(st.binary(max_size=200), st.binary(max_size=64))
def test_bodies_of_noise_are_read_or_refused(body: bytes, whole: bytes) -> None:
    try:
        unpack(body, whole)
    except ProtocolError:
        return


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_headers_of_noise_are_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        Header.unpack(frame)


def test_messages_are_accepted_once_and_in_order() -> None:
    sender, receiver = Connection(TOKEN, 0, 0), Connection(TOKEN, 0, 0)
    first, second = (sender.pack(Kind.HEARTBEAT, None, Payload(None)) for _ in range(2))
    with pytest.raises(ProtocolError, match="message 2 after 0"):
        receiver.check(second)
    receiver.accept(receiver.check(first))
    with pytest.raises(ProtocolError, match="message 1 after 1"):
        receiver.check(first)
    receiver.accept(receiver.check(second))
