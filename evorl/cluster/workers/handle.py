"""A worker's place: the calls that it has to answer, and what its process says of them and of itself."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, NamedTuple

import msgspec

from evorl.cluster.transport.broadcast_relay import NO_RELAY, SECRET_BYTES, RelayAddress
from evorl.cluster.transport.connection import Connection, Payload, bulk
from evorl.cluster.transport.shared_memory import BlockPool, Reader
from evorl.cluster.transport.wire import Bulk, Header, ProtocolError, check_outcomes, unpack
from evorl.cluster.workers.failure_policy import FailureHistory

AHEAD_S = 0.005  # so much work is sent ahead to a worker
MAX_AHEAD = 64  # calls


States = Sequence[bytes | None]
"""Of a call's members, packed."""
Outcomes = list[tuple[bool, Any]]
"""By member: (True, answer) or (False, `Failure`)."""


@dataclass(slots=True)
class Call:
    """One call to some members of one worker."""

    number: int
    method: str
    members: list[int]
    payload: Payload  # the arguments; the newest ones of a stream
    stateful: bool  # its members' states are asked for
    copy: bool = True  # arrays of the answer, out of the worker's memory
    sole_reader: bool = False  # nobody else reads its payload
    argument_block: int | None = None  # our block that it reads its arguments from
    answer_queue: deque[Call] | None = None  # where it is put once it is answered
    answer_block: tuple[WorkerHandle, int, int] | None = (
        None  # whose, of which life, and the block that views of the answer lie in
    )
    outcomes: Outcomes | None = None
    states: States = ()  # where asked for

    def hold_arguments(self, pool: BlockPool) -> None:
        """Keep what its worker will read, until it is given back."""
        former, self.argument_block = self.argument_block, self.payload.block
        if self.argument_block is not None:
            pool.add_user(self.argument_block)
        if former is not None:
            pool.release(former)

    def release_arguments(self, pool: BlockPool) -> None:
        """Nobody reads its arguments any more."""
        for block in (self.argument_block, self.payload.block if self.sole_reader else None):
            if block is not None:
                pool.release(block)
        self.argument_block = None


class Hello(NamedTuple):
    """What a worker says first."""

    pid: int
    host: str  # whose memory it can read
    relay_endpoint: str  # where it takes parcels from others, and its key: see `RelayAddress`
    relay_key: str
    relay_secret: Annotated[bytes, msgspec.Meta(max_length=SECRET_BYTES)]  # what these are signature with


@dataclass(slots=True)
class WorkerHandle:
    """A worker's place: the process that holds it now, and what it has to do.

    What takes a message raises `ProtocolError` where it is not the next of its worker, and then nothing has changed.
    """

    number: int
    members: list[int]
    connection: Connection
    life: int = 0
    ready: bool = False  # its members are made
    last_sign: float = 0.0  # when it last hello or began something
    calls_began: float = 0.0  # when it began the calls that it is at, whatever it says meanwhile
    overdue: bool = False  # past its deadline, and being killed
    reader: Reader | None = None  # of its process's blocks
    host: str = ""  # whose memory it can read
    pid: int = 0
    relay: RelayAddress = NO_RELAY  # where it takes parcels from others
    secret: bytes = b""  # that these are signature with
    missing_call: int = 0  # a call whose arrays were gone from its host before it could read them
    sent: deque[Call] = field(default_factory=deque)  # not yet answered, in order
    unsent: deque[Call] = field(default_factory=deque)  # the last of these, which are not on their way yet
    released: list[int] = field(default_factory=list)  # its blocks that we have read
    seconds_per_call: float = 0.0  # seconds a call takes it, smoothed
    failures: FailureHistory = field(default_factory=FailureHistory)

    @property
    def name(self) -> bytes:
        """What its process is called at the socket."""
        return b"%d.%d" % (self.number, self.life)

    @property
    def in_flight(self) -> int:
        """Calls that it has been sent and has not answered."""
        return len(self.sent) - len(self.unsent)

    @property
    def assigned(self) -> int:
        return len(self.sent)

    @property
    def capacity(self) -> int:
        """Calls for a moment's work."""
        if not self.ready:
            return 0
        return min(MAX_AHEAD, max(1, int(AHEAD_S / self.seconds_per_call))) if self.seconds_per_call else 1

    def seconds_overdue(self, deadline_s: float) -> float:
        """Seconds by which it is past its deadline, where something is expected of it; else nothing."""
        return time.monotonic() - self.last_sign - deadline_s if self.in_flight or not self.ready else 0.0

    @property
    def activity(self) -> str:
        """What its process was at when it ended."""
        if not self.ready:
            return "it began"
        return f"{self.sent[0].method} ran" if self.sent else "it waited"

    def reset(self) -> None:
        """The place is another process's now, and with it the calls; all else was the former one's."""
        self.life += 1
        self.connection = Connection(self.connection.token, self.number, self.life)
        self.reader, self.host, self.relay, self.secret = None, "", NO_RELAY, b""
        self.overdue, self.released, self.missing_call = False, [], 0

    def clear(self) -> None:
        """Nothing is asked of it any more."""
        self.reader = None
        self.sent.clear()
        self.unsent.clear()

    # -------------------------------------------------------------- what its process says

    def accept_hello(self, header: Header, hello: Hello) -> None:
        if self.host or not 0 < hello.pid < 1 << 31 or not hello.host:
            raise ProtocolError("a worker says once which process it is, and where")
        self.connection.accept(header)
        self.pid, self.host, self.secret = hello.pid, hello.host, hello.relay_secret
        self.relay = RelayAddress(self.number, self.life, hello.relay_endpoint, hello.relay_key)

    def accept_missing(self, header: Header, number: int) -> None:
        """The arrays of a call were gone before they could be read: from this call on all have to come again."""
        in_flight = [*islice(self.sent, self.in_flight)]
        if not self.ready or number == self.missing_call or number not in [call.number for call in in_flight]:
            raise ProtocolError(f"call {number} is none of its own, or came with its arrays")
        self.connection.accept(header)
        self.missing_call = number
        self.unsent.extendleft(call for call in reversed(in_flight) if call.number >= number)

    def accept_answers(self, header: Header, frames: list[bytes]) -> list[tuple[Call, States, Outcomes]]:
        """Answers to the next calls, or that its members are made: to call 0."""
        heads = unpack(frames[1], form=list[tuple[int, list[bytes | None]]])
        calls = self._next_calls([number for number, _ in heads])
        memory, block = bulk(header, frames, self.reader)
        copy = calls[0].copy or header.bulk != Bulk.SHARED  # what the message itself holds is read-only
        bodies = unpack(frames[2], memory, copy, list[list[tuple[bool, Any]]])
        if len(bodies) != len(calls) or (header.size and len(calls) > 1):
            raise ProtocolError(f"{len(bodies)} answers to {len(calls)} calls, with {header.size} bytes of arrays")
        for call, (_, states), outcomes in zip(calls, heads, bodies, strict=True):
            check_outcomes(outcomes, len(call.members))
            if len(states) != len(call.members):
                raise ProtocolError(f"{len(states)} states of {len(call.members)} members")
        self.connection.accept(header)
        now = time.monotonic()
        if self.ready:  # else it has made its members, which says nothing of calls
            self.seconds_per_call += 0.2 * ((now - self.calls_began) / len(calls) - self.seconds_per_call)
        self.last_sign = self.calls_began = now
        if block is not None and not calls[0].copy:
            calls[0].answer_block = (self, self.life, block)
        elif block is not None:
            self.released.append(block)
        return [(call, states, body) for call, (_, states), body in zip(calls, heads, bodies, strict=True)]

    def _next_calls(self, numbers: list[int]) -> list[Call]:
        if numbers == [0] and not self.ready:
            return [Call(0, "", self.members, Payload(None), stateful=True)]
        calls = [*islice(self.sent, len(numbers))]
        if not 0 < len(numbers) <= self.in_flight or numbers != [call.number for call in calls]:
            raise ProtocolError(f"answers to calls {numbers}, which are not the next")
        return calls
