"""What a group asks of whoever starts its processes."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

import zmq


class Exit(NamedTuple):
    """A worker's process that ended."""

    worker: int
    life: int
    why: str
    blameless: bool  # it was ended by others, for nothing that it did
    member: int | None = None  # that it was busy with, where known
    trace: str = ""  # where it was, as far as that was written down
    stopped: bool = False  # it hung because a signal had stopped it


class Launcher(Protocol):
    """Starts, watches and ends the processes of a group."""

    endpoint: str
    workers: int
    host: str
    """Whose memory the driver can read (see `evorl.cluster.transport.host`)."""

    def bind(self, socket: zmq.Socket[bytes]) -> Collection[bytes] | None:
        """Open the endpoint to the workers: to those with the group's token, or with the (changing) keys returned."""
        ...

    def start(self, token: bytes, worker: int, life: int) -> None:
        """Begin a process that serves as ``worker``."""
        ...

    def kill(self, worker: int, life: int) -> None:
        """End a process that hangs; its `Exit` comes as for any other."""
        ...

    def exits(self) -> list[Exit]:
        """The processes that ended since the last call."""
        ...

    @property
    def watch(self) -> int | None:
        """A file descriptor that becomes readable when there may be exits; None: look now and then."""
        ...

    def close(self) -> None: ...
