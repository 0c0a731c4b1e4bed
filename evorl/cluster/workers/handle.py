"""The driver's record of one worker: its process, its calls, and the messages that it sends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, NamedTuple

import msgspec

from evorl.cluster.core import Position
from evorl.cluster.transport.broadcast_relay import NO_RELAY, SECRET_BYTES, RelayAddress
from evorl.cluster.transport.connection import Connection, Payload, bulk, receiver_name
from evorl.cluster.transport.shared_memory import BlockPool, Reader
from evorl.cluster.transport.wire import Bulk, Header, Kind, ProtocolError, check_outcomes, unpack
from evorl.cluster.workers.failure_policy import FailureHistory

AHEAD_S = 0.005  # seconds of work that are sent ahead to a worker
MAX_AHEAD = 64  # calls


States = Sequence[bytes | None]
"""Serialized states of a call's members."""
Outcomes = list[tuple[bool, Any]]
"""By member: (True, answer) or (False, `Failure`)."""


@dataclass(slots=True)
class Call:
    """One call to some members of one worker."""

    number: int
    method: str
    members: list[int]
    payload: Payload  # the arguments; of a stream, the newest ones
    stateful: bool  # the answer includes the members' states
    position: Position | None = None  # how much of the group's feed there was when it was assigned
    copy: bool = True  # copy the answer's arrays out of the worker's memory
    sole_reader: bool = False  # no other call has the same payload
    argument_block: int | None = None  # the driver's block that holds its arguments
    answer_queue: deque[Call] | None = None  # gets this call when it is answered
    answer_block: tuple[WorkerHandle, int, int] | None = None  # worker, life and block of the answer's views
    outcomes: Outcomes | None = None  # None until it is answered
    states: States = ()  # if stateful

    def hold_arguments(self, pool: BlockPool) -> None:
        """Keep the block that its worker will read, until `release_arguments`."""
        former, self.argument_block = self.argument_block, self.payload.block
        if self.argument_block is not None:
            pool.add_user(self.argument_block)
        if former is not None:
            pool.release(former)

    def release_arguments(self, pool: BlockPool) -> None:
        """Release the blocks of its arguments."""
        for block in (self.argument_block, self.payload.block if self.sole_reader else None):
            if block is not None:
                pool.release(block)
        self.argument_block = None


class Hello(NamedTuple):
    """The first message of a worker."""

    pid: int
    host: str  # identifier of the host whose memory it can read
    relay_endpoint: str  # see `RelayAddress`
    relay_key: str
    relay_secret: Annotated[bytes, msgspec.Meta(max_length=SECRET_BYTES)]  # for the signatures of its broadcasts


@dataclass(slots=True)
class WorkerHandle:
    """One worker as the driver sees it: its current process and its calls.

    Methods that accept a message raise `ProtocolError`, and change nothing, if it is not the worker's next message.
    """

    number: int
    members: list[int]
    connection: Connection
    life: int = 0
    ready: bool = False  # its members are made
    last_sign: float = 0.0  # time of its last message, or since when it has had work
    calls_began: float = 0.0  # when it began its current calls; unlike last_sign, heartbeats do not change it
    overdue: bool = False  # past its deadline, and being killed
    reader: Reader | None = None  # of its process's blocks
    host: str = ""  # identifier of the host whose memory it can read; empty before its hello
    pid: int = 0
    relay: RelayAddress = NO_RELAY
    secret: bytes = b""  # for the signatures of its broadcasts
    stored: dict[int, tuple[int, int]] = field(default_factory=dict)  # broadcast -> its file descriptor and block
    receiver: Connection | None = None  # with its receiver; None before this has connected
    told: tuple[int, int] = (0, -1)  # the copy of the feed that it was told of: process and file descriptor
    located: bool = False  # it has mapped that copy
    owed: dict[Kind, float] = field(default_factory=dict)  # confirmations that its receiver owes, and since when
    missing_call: int = 0  # number of a call whose arrays were gone from its host before it could read them
    sent: deque[Call] = field(default_factory=deque)  # assigned and not answered, in order
    unsent: deque[Call] = field(default_factory=deque)  # the last of these, not sent yet
    released: list[int] = field(default_factory=list)  # its blocks that the driver has read
    seconds_per_call: float = 0.0  # moving average
    failures: FailureHistory = field(default_factory=FailureHistory)

    @property
    def name(self) -> bytes:
        """Return the identity of its process at the driver's socket."""
        return b"%d.%d" % (self.number, self.life)

    @property
    def receiver_name(self) -> bytes:
        """Return the identity of its process's receiver there."""
        return receiver_name(self.number, self.life)

    @property
    def connected(self) -> bool:
        """Return whether its process is connected, and its receiver too if it has one."""
        return self.reader is not None or self.receiver is not None

    @property
    def in_flight(self) -> int:
        """Return the number of calls that were sent to it and are not answered."""
        return len(self.sent) - len(self.unsent)

    @property
    def assigned(self) -> int:
        return len(self.sent)

    @property
    def capacity(self) -> int:
        """Return the number of calls that it may have assigned: about `AHEAD_S` seconds of work."""
        if not self.ready:
            return 0
        return min(MAX_AHEAD, max(1, int(AHEAD_S / self.seconds_per_call))) if self.seconds_per_call else 1

    def seconds_overdue(self, deadline_s: float) -> float:
        """Return the seconds since its deadline (negative before it); 0 if no message of it is expected."""
        began = [self.last_sign] if self.in_flight or not self.ready else []
        began += self.owed.values()
        return time.monotonic() - min(began) - deadline_s if began else 0.0

    @property
    def activity(self) -> str:
        """Return what its process was doing, for messages about its end."""
        if not self.ready:
            return "it began"
        return f"{self.sent[0].method} ran" if self.sent else "it waited"

    def reset(self) -> None:
        """Prepare for a new process, which takes over the calls; forget all else of the former process."""
        self.life += 1
        self.connection = Connection(self.connection.token, self.number, self.life)
        self.reader, self.host, self.relay, self.secret = None, "", NO_RELAY, b""
        self.overdue, self.released, self.missing_call = False, [], 0
        self.stored, self.receiver = {}, None
        self.told, self.located, self.owed = (0, -1), False, {}

    def clear(self) -> None:
        """Drop all calls."""
        self.reader = None
        self.sent.clear()
        self.unsent.clear()

    # -------------------------------------------------------------- messages of its process

    def accept_hello(self, header: Header, hello: Hello) -> None:
        if self.host or not 0 < hello.pid < 1 << 31 or not hello.host:
            raise ProtocolError("a second or malformed hello")
        self.connection.accept(header)
        self.pid, self.host, self.secret = hello.pid, hello.host, hello.relay_secret
        self.relay = RelayAddress(self.number, self.life, hello.relay_endpoint, hello.relay_key)

    def accept_missing(self, header: Header, number: int) -> None:
        """Accept the message that a call's arrays were gone; this call and all later ones are sent again."""
        in_flight = [*islice(self.sent, self.in_flight)]
        if not self.ready or number == self.missing_call or number not in [call.number for call in in_flight]:
            raise ProtocolError(f"call {number} is not one of its calls, or was sent with its arrays")
        self.connection.accept(header)
        self.missing_call = number
        self.unsent.extendleft(call for call in reversed(in_flight) if call.number >= number)

    def accept_answers(self, header: Header, frames: list[bytes]) -> list[tuple[Call, States, Outcomes]]:
        """Accept answers to its next calls; an answer to call 0 reports that its members are made."""
        heads = unpack(frames[1], form=list[tuple[int, list[bytes | None]]])
        calls = self._next_calls([number for number, _ in heads])
        memory, block = bulk(header, frames, self.reader)
        copy = calls[0].copy or header.bulk != Bulk.SHARED  # arrays in a frame are read-only
        bodies = unpack(frames[2], memory, copy, list[list[tuple[bool, Any]]])
        if len(bodies) != len(calls) or (header.size and len(calls) > 1):
            raise ProtocolError(f"{len(bodies)} answers to {len(calls)} calls, with {header.size} bytes of arrays")
        for call, (_, states), outcomes in zip(calls, heads, bodies, strict=True):
            check_outcomes(outcomes, len(call.members))
            if len(states) != len(call.members):
                raise ProtocolError(f"{len(states)} states of {len(call.members)} members")
        self.connection.accept(header)
        now = time.monotonic()
        if self.ready:  # else it made its members, which is not a measure of calls
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
