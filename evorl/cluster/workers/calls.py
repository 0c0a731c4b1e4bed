"""Calls to members, and the queue of those that one worker has been assigned."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from evorl.cluster.core import MemberError, Position
from evorl.cluster.transport.connection import Bytes, Payload
from evorl.cluster.transport.shared_memory import BlockPool
from evorl.cluster.transport.wire import Failure, ProtocolError
from evorl.cluster.workers.process import Process

AHEAD_S = 0.005  # seconds of work that are sent ahead to a worker
MAX_AHEAD = 64  # calls

States = Sequence[Bytes | None]
"""Serialized states of some members."""
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
    answer_block: tuple[Process, int] | None = None  # the block of the answer's views
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

    def release_answer(self) -> None:
        """Release the memory of its answer, whose views are not read any more; copy the answer if it is to come."""
        self.copy, self.answer_queue = True, None
        if self.answer_block is not None:
            process, block = self.answer_block
            process.released.append(block)


@dataclass(slots=True)
class CallQueue:
    """The calls that a worker has been assigned and has not answered: those in flight, then the unsent ones."""

    in_flight: deque[Call] = field(default_factory=deque)
    unsent: deque[Call] = field(default_factory=deque)
    missing: int = 0  # number of a call whose arrays were gone from its host: it is sent together with them
    began: float = 0.0  # time since when those in flight run
    seconds_per_call: float = 0.0  # moving average

    def __len__(self) -> int:
        return len(self.in_flight) + len(self.unsent)

    @property
    def first(self) -> Call | None:
        """Return the call that is answered next; None if there is none."""
        return next(iter(self.in_flight or self.unsent), None)

    @property
    def capacity(self) -> int:
        """Return the number of calls that it may hold: about `AHEAD_S` seconds of work."""
        return min(MAX_AHEAD, max(1, int(AHEAD_S / self.seconds_per_call))) if self.seconds_per_call else 1

    def send_next(self) -> Call:
        """Mark the first unsent call as sent, and return it."""
        self.in_flight.append(self.unsent.popleft())
        return self.in_flight[-1]

    def next_answered(self, numbers: Sequence[int]) -> list[Call]:
        """Return the calls with these numbers. Raises `ProtocolError` if they are not the next ones in flight."""
        calls = [*islice(self.in_flight, len(numbers))]
        if not calls or [*numbers] != [call.number for call in calls]:
            raise ProtocolError(f"answers to calls {numbers}, which are not the next")
        return calls

    def remove_answered(self, count: int) -> None:
        """Remove the next calls in flight, which are answered, and measure their time."""
        for _ in range(count):
            self.in_flight.popleft()
        former, self.began = self.began, time.monotonic()
        self.seconds_per_call += 0.2 * ((self.began - former) / count - self.seconds_per_call)

    def send_again(self) -> None:
        """Mark all calls as unsent: the worker has lost them."""
        self.unsent.extendleft(reversed(self.in_flight))
        self.in_flight.clear()

    def send_again_from(self, number: int) -> None:
        """Mark the call whose arrays were gone, and those sent after it, as unsent.

        Raises `ProtocolError` if it is not in flight, or was sent together with its arrays.
        """
        if number == self.missing or number not in [call.number for call in self.in_flight]:
            raise ProtocolError(f"call {number} is not one of its calls, or was sent with its arrays")
        self.missing, last = number, None
        while last != number:  # those sent after it may have smaller numbers
            self.unsent.appendleft(self.in_flight.pop())
            last = self.unsent[0].number

    def clear(self) -> None:
        self.in_flight.clear()
        self.unsent.clear()


def member_error(plain: Mapping[str, type[Exception]], member: int, content: Failure) -> Exception:
    """Return the error to raise for a member's failure: of one of the ``plain`` classes, by full name, if it is one."""
    kinds, message, trace = content
    kind = next((plain[name] for name in kinds if name in plain), None)
    if kind is None:
        return MemberError(member, kinds, message, trace)
    error = kind(message)
    error.add_note(f"raised by member {member}:\n{trace}".rstrip())
    return error
