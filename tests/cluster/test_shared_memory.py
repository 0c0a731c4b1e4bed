"""Anonymous shared memory: one process reads what another writes, and can read nothing else."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from evorl.cluster.transport.connection import PLACE, Payload, bulk
from evorl.cluster.transport.shared_memory import PAGE, Block, BlockPool, Reader
from evorl.cluster.transport.wire import Bulk, Header, Kind, ProtocolError, unpack


@pytest.fixture
def block() -> Iterator[Block]:
    block = Block()
    yield block
    block.close()


def test_another_process_reads_a_block(block: Block) -> None:
    block.view(5)[:] = b"hello"
    code = "from evorl.cluster.transport.shared_memory import Reader\n"
    code += f"print(bytes(Reader({os.getpid()}).view({block.fd}, 5)).decode())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "hello\n"


def test_growth_keeps_old_views_valid(block: Block) -> None:
    reader = Reader(os.getpid())
    first = block.view(10)
    first[:] = b"0123456789"
    seen = reader.view(block.fd, 10)
    grown = block.view(10 * PAGE)
    grown[10:20] = b"abcdefghij"
    assert bytes(grown[:20]) == b"0123456789abcdefghij"
    again = reader.view(block.fd, 10 * PAGE)
    first[0] = ord("X")  # old and new views share the same bytes, in writer and reader
    assert bytes(seen) == bytes(again[:10]) == bytes(grown[:10]) == b"X123456789"
    assert bytes(again[10:20]) == b"abcdefghij"


def test_capacity_grows_exponentially(block: Block) -> None:
    capacities = set()
    for size in range(1, 200 * PAGE, PAGE // 2):
        assert len(block.view(size)) == size
        capacities.add(block.capacity)
    assert len(capacities) <= 9


def test_a_pool_reuses_free_blocks() -> None:
    pool = BlockPool()
    (one, a), (two, b) = pool.acquire(), pool.acquire()
    assert one != two and a is not b
    pool.release(two)
    pool.release(two)  # a second release has no effect
    pool.release(99)  # not one of its blocks
    assert pool.acquire() == (two, b)
    three, _ = pool.acquire()
    assert three not in (one, two)
    pool.release(one)
    pool.release(three)
    assert pool.acquire()[0] == three  # the most recently used first
    assert len(pool.blocks) == 3
    pool.close()


def test_a_block_is_free_when_its_last_user_is_removed() -> None:
    pool = BlockPool()
    one, _ = pool.acquire()
    pool.add_user(one)
    pool.add_user(one)
    for _ in range(2):
        pool.release(one)
        assert pool.acquire()[0] != one
    pool.release(one)
    assert pool.acquire()[0] == one
    pool.close()
    pool.add_user(one)  # late calls after close have no effect
    pool.release(one)


def test_close_leaves_no_open_file(block: Block) -> None:
    before = os.listdir("/proc/self/fd")
    pool = BlockPool()
    for _ in range(5):
        pool.acquire()[1].view(100_000)[:] = bytes(100_000)
    reader = Reader(os.getpid())
    reader.view(pool.blocks[2].fd, 10)
    pool.close()
    del reader
    assert os.listdir("/proc/self/fd") == before


def test_a_view_outlives_its_block_and_its_reader() -> None:
    block = Block()
    block.view(3)[:] = b"abc"
    seen = Reader(os.getpid()).view(block.fd, 3)
    block.close()
    assert bytes(seen) == b"abc"


def test_reading_beyond_a_block_is_refused(block: Block) -> None:
    block.view(PAGE)
    for size in (PAGE + 1, 1 << 40, 1 << 62):
        with pytest.raises(ValueError, match="were announced"):
            Reader(os.getpid()).view(block.fd, size)


# ------------------------------------------------------------------ hostile references


def entries(place: Path) -> Iterator[int]:
    """Yield descriptors of files that a message must not be able to open."""
    secret = place / "secret"
    secret.write_bytes(bytes(PAGE))
    disguised = place / "memfd:evorl (deleted)"
    disguised.write_bytes(bytes(PAGE))
    yield os.open(secret, os.O_RDWR)
    yield os.open(disguised, os.O_RDWR)
    yield os.open("/dev/zero", os.O_RDWR)
    yield os.open(place, os.O_RDONLY)
    fifo = place / "fifo"
    os.mkfifo(fifo)
    yield os.open(fifo, os.O_RDWR)  # opening it would wait for a writer
    yield from os.pipe()
    yield socket.socket().detach()
    foreign = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    os.ftruncate(foreign, PAGE)
    fcntl.fcntl(foreign, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    yield foreign
    shrinking = os.memfd_create("evorl", os.MFD_ALLOW_SEALING)  # it could shrink while it is read: SIGBUS
    os.ftruncate(shrinking, PAGE)
    yield shrinking
    giant = os.memfd_create("evorl", os.MFD_ALLOW_SEALING)
    os.ftruncate(giant, 1 << 41)
    fcntl.fcntl(giant, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    yield giant
    empty = os.memfd_create("evorl", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(empty, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    yield empty
    yield 1 << 20  # no file at all
    yield (1 << 32) - 1


def shared(place: bytes, size: int = 8) -> tuple[Header, list[bytes]]:
    return Header(Kind.ANSWER, bytes(16), 0, 0, 1, Bulk.SHARED, size), [b"", b"", b"", place]


def test_only_blocks_can_be_mapped(tmp_path: Path) -> None:
    reader = Reader(os.getpid())
    found = [*entries(tmp_path)]
    try:
        for fd in found:
            before = len(os.listdir("/proc/self/fd"))
            with pytest.raises(ProtocolError):
                bulk(*shared(PLACE.pack(fd, 0)), reader)
            assert len(os.listdir("/proc/self/fd")) == before
    finally:
        for fd in found[:-2]:
            os.close(fd)


@pytest.mark.parametrize("place", [b"", b"0 1", b"3" * 8 + b"x", bytes(7), bytes(9), b"\xff" * 8, b"../../../"])
def test_malformed_places_are_refused(place: bytes) -> None:
    with pytest.raises(ProtocolError):
        bulk(*shared(place), Reader(os.getpid()))


def test_shared_memory_is_refused_before_the_hello(block: Block) -> None:
    block.view(8)
    with pytest.raises(ProtocolError):
        bulk(*shared(PLACE.pack(block.fd, 0)), None)


@pytest.mark.parametrize("pid", [1 << 40, 1 << 22])
def test_a_process_that_does_not_exist(block: Block, pid: int) -> None:
    with pytest.raises(ProtocolError):
        bulk(*shared(PLACE.pack(block.fd, 0)), Reader(pid))


# ------------------------------------------------------------------ payloads


def test_large_arrays_are_shared_and_small_ones_are_in_frames() -> None:
    pool = BlockPool()
    for count, where in ((0, Bulk.NONE), (10, Bulk.FRAME), (100_000, Bulk.SHARED)):
        value = np.arange(count)
        payload = Payload([value], pool)
        found, (*frame,) = payload.bulk(shared=True)
        assert found == where
        header = Header(Kind.CALL, bytes(16), 0, 0, 1, found, payload.size)
        memory, number = bulk(header, [b"", b"", payload.body, *map(bytes, frame)], Reader(os.getpid()))
        assert number == payload.block
        assert np.array_equal(unpack(payload.body, memory)[0], value)
        apart, (*frame,) = payload.bulk(shared=False)  # for a receiver on another host
        assert apart in (Bulk.NONE, Bulk.FRAME)
        assert np.array_equal(unpack(payload.body, b"".join(map(bytes, frame)))[0], value)
    pool.close()
