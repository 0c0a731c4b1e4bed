"""Anonymous shared memory: no names that could collide, and nothing left behind when a process is killed.

A block is a file in memory (memfd). Its owner writes it; processes that may read the owner's /proc entry (same user,
same machine) map it. The kernel frees it with its last user. It is sealed against shrinking, because pages that
vanish would kill a reader (SIGBUS).
"""

from __future__ import annotations

import fcntl
import mmap
import os

PAGE = mmap.PAGESIZE
NAME = "evorl"
MAX_BLOCK = 1 << 40  # bytes


class Block:
    """Bytes of this process that other processes can map; grows, never shrinks."""

    def __init__(self) -> None:
        self.fd = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.capacity = 0
        self._map: mmap.mmap | None = None

    def view(self, size: int) -> memoryview:
        """Return its first ``size`` bytes, writable. Raises OSError if there is no memory left."""
        if size > self.capacity:
            capacity = -(-max(size, 2 * self.capacity) // PAGE) * PAGE
            os.ftruncate(self.fd, capacity)
            self._map = mmap.mmap(self.fd, capacity)  # an older map stays valid as long as its views
            self.capacity = capacity
        return memoryview(self._map)[:size] if self._map is not None else memoryview(b"")

    def close(self) -> None:
        os.close(self.fd)
        self._map = None


class BlockPool:
    """The blocks of one process: acquired for a message, released when all receivers have read it."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self._free: list[int] = []
        self._users: dict[int, int] = {}  # number of users of each acquired block

    def acquire(self) -> tuple[int, Block]:
        """Return the number of a free block, and the block, with one user.

        It is the most recently used one, because its pages are still in the caches.
        """
        if self._free:
            number = self._free.pop()
        else:
            number = len(self.blocks)
            self.blocks[number] = Block()
        self._users[number] = 1
        return number, self.blocks[number]

    def add_user(self, number: int) -> None:
        """Add a user to an acquired block; do nothing after `close`."""
        if number in self._users:
            self._users[number] += 1

    def release(self, number: int) -> None:
        """Remove a user from a block; the block is free when it has none."""
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
    """The blocks of another process, each mapped once and read many times."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._maps: dict[int, mmap.mmap] = {}

    def view(self, fd: int, size: int) -> memoryview:
        """Return the first ``size`` bytes of a block. Raises OSError, ValueError if the block does not exist."""
        mapped = self._maps.get(fd)
        if mapped is None or len(mapped) < size:
            mapped = self._maps[fd] = _map_block(f"/proc/{self.pid}/fd/{fd}")
        if len(mapped) < size:
            raise ValueError(f"a block of {len(mapped)} bytes, but {size} were announced")
        return memoryview(mapped)[:size]


def _map_block(path: str) -> mmap.mmap:
    """Map a block by its entry in /proc. Raises ValueError for any other file that a message may name there."""
    if not os.readlink(path).startswith(f"/memfd:{NAME} "):
        raise ValueError(f"{path} is not a block of shared memory")
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        size = os.fstat(handle).st_size
        if not fcntl.fcntl(handle, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK or size > MAX_BLOCK:
            raise ValueError(f"{path} is not a block of shared memory")
        # Writable, because torch supports no read-only memory. Not private, because a private map would keep what its
        # reader wrote, and the next message in this block would be read wrong. A reader owns a block until it
        # releases it.
        return mmap.mmap(handle, size)
    finally:
        os.close(handle)
