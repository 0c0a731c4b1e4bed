"""A replay that one process appends to and many read: in shared memory, or as a copy that follows on other hosts.

The arrays lie in one block that only its maker writes (`evorl.cluster.transport.shared_memory`). A reader gets a
length and the oldest number that it may name. The ring has slack beyond its capacity, and the writer asks
`Replay.spares` before it appends, so a reader never sees a row overwritten.

On another host one process keeps a copy of the ring, and the others map it. It gets the rows that are appended
(`SharedReplay.after`, `evorl.cluster.core.Feed`), and stores each where the writer has it. It is never ahead of the
writer, so what holds for a reader of the writer's memory holds for a reader of the copy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.cluster.transport.host import host_id
from evorl.cluster.transport.shared_memory import Block, Reader
from evorl.mdp.core import Spec
from evorl.replay.storage import Append, Array, Replay, Shape, Storage, by_number
from evorl.util.types import AppendedRows, StateDict

ALIGNMENT = 64  # bytes: arrays in shared memory begin at cache lines
PIECE_BYTES = 1 << 24  # about as many of frames, and of transitions, in one message


def ring_bytes(spec: Spec, shape: Shape) -> int:
    """Bytes that the arrays of a ring take."""
    total = 0

    def measure(sizes: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        nonlocal total
        total += -(-int(np.prod(sizes)) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return np.empty(0)

    Storage(spec, shape, measure)
    return total


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

    def position(self) -> Append | None:
        """Return how many transitions and frames there are (`evorl.cluster.core.Feed`)."""
        return Append(self.count, self.frames) if self.count else None

    def after(self, position: tuple[int, ...] | None) -> tuple[Append, StateDict] | None:
        """Return the next rows that a copy lacks, and what it holds then (`evorl.cluster.core.Feed`)."""
        former = Append(0, 0) if position is None else Append(*position)
        frames, transitions = (
            rows._replace(first=min(max(rows.first, low), rows.end))
            for rows, low in zip(self.held(), (former.frames, former.transitions), strict=True)
        )
        if frames.first == frames.end and transitions.first == transitions.end:
            return None
        frames, rest = _first_piece(frames)
        transitions = transitions._replace(end=transitions.first) if rest else _first_piece(transitions)[0]
        piece = {"frames": frames.whole(), "transitions": transitions.whole(), "count": transitions.end}
        return Append(transitions.end if transitions.first < transitions.end else former.transitions, frames.end), piece

    def close(self) -> None:
        """Free the memory when its last reader is gone."""
        self.block.close()


def _first_piece(rows: AppendedRows) -> tuple[AppendedRows, bool]:
    """Return the first `PIECE_BYTES` of rows, and whether there are more."""
    first = next(rows.pieces(PIECE_BYTES), rows)
    return first, first.end < rows.end


class SharedReader:
    """Finds the arrays of another process's replay, or this host's copy of them (`evorl.cluster.core.FeedReader`)."""

    def __init__(self, spec: Spec, shape: Shape) -> None:
        self.spec, self.shape = spec, shape
        self._mapped: tuple[Address, Storage] | None = None
        self._kept: tuple[Block, Storage] | None = None  # the copy that this process writes
        self._located: Storage | None = None  # the copy of this host

    def follow(self, piece: StateDict) -> int:
        """Store a piece of `SharedReplay.after` in the copy; return the file descriptor of the copy's block."""
        if self._kept is None:
            block = Block()
            memory = block.view(ring_bytes(self.spec, self.shape))
            self._kept = block, Storage(self.spec, self.shape, _Carver(memory))
        block, copy = self._kept
        copy.put_frames(piece["frames"]["first"], by_number(piece["frames"]["rows"]))
        copy.put_transitions(piece["transitions"]["first"], piece["transitions"]["rows"], piece["count"])
        return block.fd

    def locate(self, pid: int, fd: int) -> None:
        """Map the copy that a process of this host keeps. Raises OSError, ValueError if it cannot."""
        self._located = self._map(pid, fd, ring_bytes(self.spec, self.shape))

    def storage(self, address: Address) -> Storage:
        """The arrays at an address, or this host's copy of them. Raises OSError, ValueError if there is neither."""
        if address.host != host_id():  # the number of a process says nothing on another host
            if self._located is None:
                raise OSError(f"the replay lies on another host ({address.host}), and there is no copy of it here")
            return self._located
        if self._mapped is None or self._mapped[0] != address:
            self._mapped = address, self._map(address.pid, address.fd, address.size)
        return self._mapped[1]

    def _map(self, pid: int, fd: int, size: int) -> Storage:
        return Storage(self.spec, self.shape, _Carver(Reader(pid).view(fd, size)))


class _Carver:
    """Finds arrays in memory, one behind the other."""

    def __init__(self, memory: memoryview) -> None:
        self.memory, self.used = memory, 0

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        count = int(np.prod(shape))
        array = np.frombuffer(self.memory, dtype, count, self.used).reshape(shape)
        self.used += -(-count * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return array
