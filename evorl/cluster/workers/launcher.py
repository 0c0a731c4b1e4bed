"""The interface between a group and the launcher of its worker processes."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

import zmq


class Exit(NamedTuple):
    """A worker's process that ended."""

    worker: int
    life: int
    why: str
    external: bool  # it was ended from outside, not by its own doing
    member: int | None = None  # the member that it was running, if known
    trace: str = ""  # its stack, as far as it could be recorded
    stopped: bool = False  # it hung because a signal had stopped it


class Launcher(Protocol):
    """Starts, watches and ends the processes of a group."""

    endpoint: str
    workers: int
    host: str
    """Identifier of the driver's host (see `evorl.cluster.transport.host`)."""

    def bind(self, socket: zmq.Socket[bytes]) -> Collection[bytes] | None:
        """Bind the socket for the workers. Return the keys that workers need, which may change; None: the token."""
        ...

    def start(self, token: bytes, worker: int, life: int) -> None:
        """Start a process for ``worker``; ``life`` counts its processes."""
        ...

    def kill(self, worker: int, life: int) -> None:
        """Kill a process that hangs; it gets an `Exit` as any other."""
        ...

    def exits(self, closing: bool = False) -> list[Exit]:
        """Return the processes that have ended since the last call. ``closing``: nothing takes the place of what is
        gone."""
        ...

    @property
    def watch(self) -> int | None:
        """A file descriptor that becomes readable when there may be exits; None: `exits` has to be polled."""
        ...

    def close(self) -> None: ...
