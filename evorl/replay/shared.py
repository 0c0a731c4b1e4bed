"""A replay that one process appends to and many read: in shared memory, or as a copy that follows on other hosts.

The arrays lie in one block that only its maker writes (`evorl.cluster.transport.shared_memory`). A reader is told a
length and the oldest number that it may name. The ring has slack beyond its capacity, and the writer asks
`Replay.spares` before it appends, so a reader never sees a row overwritten.

A process on another host keeps a copy of the ring. Before a job it gets the rows that were appended since its last one
(`SharedReplay.since`, `evorl.cluster.core.Feed`), and stores each where the writer has it. It is never ahead of the
writer, so what holds for a reader of the writer's memory holds for a reader of the copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.cluster.transport.host import host_id
from evorl.cluster.transport.shared_memory import Block, Reader
from evorl.mdp.core import Spec
from evorl.replay.storage import Append, Replay, Shape, Storage, by_number
from evorl.util.types import StateDict

ALIGNMENT = 64  # bytes: arrays begin at cache lines
PIECE_BYTES = 1 << 26  # about as many in one message; a whole ring may be too large for one


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
        size = ring_bytes(spec, shape)
        super().__init__(spec, shape, _Carver(self.block.view(size)))
        self.size = size

    def address(self, pid: int) -> Address:
        """Its address; ``pid`` is that of the process that made it."""
        return Address(host_id(), pid, self.block.fd, self.size)

    def since(self, known: Append | None) -> tuple[Append, Iterator[StateDict]]:
        """Return how much there is, and in pieces what a copy lacks that had ``known`` (`evorl.cluster.core.Feed`)."""
        former = known or Append(0, 0)
        frames, transitions = self.held()
        pieces = (
            {"kind": kind, "count": self.count, **piece.whole()}
            for kind, rows, low in (
                ("frames", frames, former.frames),
                ("transitions", transitions, former.transitions),
            )
            for piece in rows._replace(first=max(rows.first, low)).pieces(PIECE_BYTES)
        )
        return Append(self.count, self.frames), pieces

    def close(self) -> None:
        """Free the memory when its last reader is gone."""
        self.block.close()


class SharedReader:
    """Finds the arrays of another process's replay: mapped once, or a copy that follows it."""

    def __init__(self, spec: Spec, shape: Shape) -> None:
        self.spec, self.shape = spec, shape
        self._storage: tuple[Address, Storage] | None = None
        self._copy: Storage | None = None

    def follow(self, piece: StateDict) -> None:
        """Store a piece of `SharedReplay.since` in this process's copy."""
        if self._copy is None:
            self._copy = Storage(self.spec, self.shape)
        if piece["kind"] == "frames":
            self._copy.put_frames(piece["first"], by_number(piece["rows"]))
        else:
            self._copy.put_transitions(piece["first"], piece["rows"], piece["count"])

    def storage(self, address: Address) -> Storage:
        """The copy if there is one, else the arrays at an address. Raises OSError, ValueError if it cannot map them."""
        if self._copy is not None:
            return self._copy
        if address.host != host_id():  # the number of a process says nothing on another host
            raise OSError(f"the replay lies on another host ({address.host}), and this process does not follow it")
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


def ring_bytes(spec: Spec, shape: Shape) -> int:
    """Bytes that the arrays of a ring take."""
    total = 0

    def measure(one: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        nonlocal total
        total += -(-int(np.prod(one)) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return np.empty(0)

    Storage(spec, shape, measure)
    return total
