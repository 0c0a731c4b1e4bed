"""A replay in shared memory: one process appends, the other processes of the machine read.

The arrays lie in one block that only its maker writes (`evorl.cluster.transport.shared_memory`). A reader is told a
length and the oldest number that it may name. The ring has slack beyond its capacity, and the writer asks
`Replay.spares` before it appends, so a reader never sees a row overwritten.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.cluster.transport.host import host_id
from evorl.cluster.transport.shared_memory import Block, Reader
from evorl.mdp.core import Spec
from evorl.replay.storage import Replay, Shape, Storage

ALIGNMENT = 64  # bytes: arrays begin at cache lines


class Address(NamedTuple):
    """Where a replay lies."""

    host: str
    pid: int
    fd: int
    size: int  # bytes


class SharedReplay(Replay):
    """A replay that other processes of this machine can read."""

    def __init__(self, spec: Spec, shape: Shape) -> None:
        self.block = Block()
        size = _size(spec, shape)
        super().__init__(spec, shape, _Carver(self.block.view(size)))
        self.size = size

    def address(self, pid: int) -> Address:
        """Its address; ``pid`` is that of the process that made it."""
        return Address(host_id(), pid, self.block.fd, self.size)

    def close(self) -> None:
        """Free the memory when its last reader is gone."""
        self.block.close()


class SharedReader:
    """Maps the replays of other processes, each once."""

    def __init__(self, spec: Spec, shape: Shape) -> None:
        self.spec, self.shape = spec, shape
        self._storage: tuple[Address, Storage] | None = None

    def storage(self, address: Address) -> Storage:
        """The arrays at an address. Raises OSError or ValueError if this process cannot map them."""
        if self._storage is None or self._storage[0] != address:
            view = Reader(address.pid).view(address.fd, address.size)
            self._storage = address, Storage(self.spec, self.shape, _Carver(view))
        return self._storage[1]


class _Carver:
    """Finds arrays in memory, one behind the other."""

    def __init__(self, memory: memoryview) -> None:
        self.memory, self.used = memory, 0

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        count = int(np.prod(shape))
        found = np.frombuffer(self.memory, dtype, count, self.used).reshape(shape)
        self.used += -(-count * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return found


def _size(spec: Spec, shape: Shape) -> int:
    """Bytes that the arrays of a ring take."""
    total = 0

    def measure(one: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        nonlocal total
        total += -(-int(np.prod(one)) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return np.empty(0)

    Storage(spec, shape, measure)
    return total
