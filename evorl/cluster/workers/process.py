"""The driver's record of one process of a worker: what it has said, and when it has given a sign."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from evorl.cluster.transport.broadcast_relay import NO_RELAY, SECRET_BYTES, RelayAddress
from evorl.cluster.transport.connection import Connection, receiver_name
from evorl.cluster.transport.shared_memory import Reader
from evorl.cluster.transport.wire import Kind, ProtocolError


class Hello(NamedTuple):
    """The first message of a worker."""

    pid: int
    host: str  # identifier of the host whose memory it can read
    relay_endpoint: str  # see `RelayAddress`
    relay_key: str
    relay_secret: Annotated[bytes, msgspec.Meta(max_length=SECRET_BYTES)]  # for the signatures of its broadcasts


@dataclass(slots=True)
class Signs:
    """The last sign of a process, and the confirmations that its receiver owes. Times are of `time.monotonic`."""

    last: float = field(default_factory=time.monotonic)  # its last message, or since when it has had work
    owed: dict[Kind, float] = field(default_factory=dict)  # since when
    overdue: bool = False  # it is past its deadline, and being killed

    def renew(self) -> None:
        """Record a message, or that its work begins."""
        self.last = time.monotonic()

    def expect(self, kind: Kind) -> None:
        """Expect a confirmation from now on, unless one of this kind is expected already."""
        self.owed.setdefault(kind, time.monotonic())

    def confirm(self, kind: Kind) -> None:
        """Expect no confirmation of this kind any more."""
        self.owed.pop(kind, None)

    def postpone(self, seconds: float) -> None:
        """Do not count so many of the last seconds."""
        self.last += seconds
        self.owed = {kind: since + seconds for kind, since in self.owed.items()}

    def silence(self, working: bool) -> float:
        """Return the seconds for which a sign has been expected; ``working``: it has work."""
        began = [*([self.last] if working else []), *self.owed.values()]
        return time.monotonic() - min(began) if began else 0.0


@dataclass(slots=True)
class Process:
    """One process of a worker. A worker that is replaced gets a new record."""

    worker: int
    life: int  # counts the worker's processes
    connection: Connection
    receiver: Connection | None  # with its receiver; None: it is on the driver's host and has none
    host: str = ""  # identifier of the host whose memory it can read; empty before its hello
    pid: int = 0
    reader: Reader | None = None  # of its blocks, if it is on the driver's host
    relay: RelayAddress = NO_RELAY
    secret: bytes = b""  # for the signatures of its broadcasts
    signs: Signs = field(default_factory=Signs)
    released: list[int] = field(default_factory=list)  # its blocks that the driver does not need any more

    @classmethod
    def started(cls, token: bytes, worker: int, life: int) -> Process:
        """Return the record of a process that has not said hello."""
        return cls(worker, life, Connection(token, worker, life), Connection(token, worker, life))

    @property
    def name(self) -> bytes:
        """Return its identity at the driver's socket."""
        return b"%d.%d" % (self.worker, self.life)

    @property
    def receiver_name(self) -> bytes:
        """Return the identity of its receiver there."""
        return receiver_name(self.worker, self.life)

    def greet(self, hello: Hello, near: bool) -> None:
        """Take over what its hello says; ``near``: from the driver's host. Raises `ProtocolError`."""
        if not 0 < hello.pid < 1 << 31 or not hello.host:
            raise ProtocolError("a malformed hello")
        self.pid, self.host, self.secret = hello.pid, hello.host, hello.relay_secret
        self.relay = RelayAddress(self.worker, self.life, hello.relay_endpoint, hello.relay_key)
        if near:
            self.reader, self.receiver = Reader(self.pid), None

    def take_released(self) -> list[int]:
        """Return the blocks that it may use again, once."""
        released, self.released = self.released, []
        return released
