"""Shared memory without names: nothing to collide with, nothing left behind when a process is killed.

A block is a file in memory (memfd) that its maker writes and whoever may read the maker's /proc entry (a process of
the same user on the same machine) maps. The kernel frees it with its last user. It is signature against shrinking:
pages that vanish under a reader would kill it.
"""

from __future__ import annotations

import fcntl
import mmap
import os

PAGE = mmap.PAGESIZE
NAME = "evorl"
MAX_BLOCK = 1 << 40  # bytes


class Block:
    """Bytes of this process that others can map; grows, never shrinks."""

    def __init__(self) -> None:
        self.fd = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.capacity = 0
        self._map: mmap.mmap | None = None

    def view(self, size: int) -> memoryview:
        """Its first ``size`` bytes, writable. Raises OSError where there is no memory left."""
        if size > self.capacity:
            capacity = -(-max(size, 2 * self.capacity) // PAGE) * PAGE
            os.ftruncate(self.fd, capacity)
            self._map = mmap.mmap(self.fd, capacity)  # an older map lives as long as its views
            self.capacity = capacity
        return memoryview(self._map)[:size] if self._map is not None else memoryview(b"")

    def close(self) -> None:
        os.close(self.fd)
        self._map = None


class BlockPool:
    """The blocks of one process: taken for a message, given back once everybody has read it."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self._free: list[int] = []
        self._users: dict[int, int] = {}  # of each block that is not free

    def acquire(self) -> tuple[int, Block]:
        """A free block and its number, the most recently used first (its pages are warm); it has one user."""
        if self._free:
            number = self._free.pop()
        else:
            number = len(self.blocks)
            self.blocks[number] = Block()
        self._users[number] = 1
        return number, self.blocks[number]

    def add_user(self, number: int) -> None:
        """A block that was taken, if there is still a pool, has one user more."""
        if number in self._users:
            self._users[number] += 1

    def release(self, number: int) -> None:
        """It has one user less; with the last one gone it is free."""
        users = self._users.pop(number, 0)
        if users > 1:
            self._users[number] = users - 1
        elif users:
            self._free.append(number)

    def close(self) -> None:
        for block in self.blocks.values():
            block.close()
        self.blocks.clear()
        self._users.clear()


class Reader:
    """The blocks of another process, mapped once and read many times."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._maps: dict[int, mmap.mmap] = {}

    def view(self, fd: int, size: int) -> memoryview:
        """The first ``size`` bytes of a block, to be read. Raises OSError, ValueError where there is no such block."""
        known = self._maps.get(fd)
        if known is None or len(known) < size:
            known = self._maps[fd] = _map_block(f"/proc/{self.pid}/fd/{fd}")
        if len(known) < size:
            raise ValueError(f"a block of {len(known)} bytes where {size} were announced")
        return memoryview(known)[:size]


def _map_block(path: str) -> mmap.mmap:
    """A block by its entry in /proc. Whatever else a message may name there is not opened."""
    if not os.readlink(path).startswith(f"/memfd:{NAME} "):
        raise ValueError(f"{path} is no block of ours")
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        size = os.fstat(handle).st_size
        if not fcntl.fcntl(handle, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK or size > MAX_BLOCK:
            raise ValueError(f"{path} is no block of ours")
        # Writable, since torch takes no other. A private map would keep what its reader wrote: then the next message
        # in this block would be read wrong. So it is shared, and whoever reads a block owns it until it is given back.
        return mmap.mmap(handle, size)
    finally:
        os.close(handle)
