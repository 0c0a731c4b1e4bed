"""A worker's place, and the calls that it has to answer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from evorl.cluster.blame import Past
from evorl.cluster.line import Letter, Line
from evorl.cluster.memory import Pool, Reader
from evorl.cluster.relay import NOWHERE, Stop
from evorl.cluster.wire import ProtocolError

AHEAD_S = 0.005  # so much work is sent ahead to a worker
MOST_AHEAD = 64  # calls


@dataclass(slots=True)
class Call:
    """One call to some members of one worker."""

    number: int
    method: str
    members: list[int]
    letter: Letter  # the arguments; the newest ones of a stream
    stateful: bool  # its members' states are asked for
    copy: bool = True  # arrays of the answer, out of the worker's memory
    alone: bool = False  # nobody else reads its letter
    lent: int | None = None  # our block that it reads its arguments from
    into: deque[Call] | None = None  # where it is put once it is answered
    block: tuple[Seat, int, int] | None = None  # whose, of which life, and the block that views of the answer lie in
    outcomes: list[Any] | None = None  # by member: [True, answer] or [False, error]
    states: Sequence[bytes | None] = ()  # by member, where asked for

    def lend(self, pool: Pool) -> None:
        """Keep what its worker will read, until it is given back."""
        former, self.lent = self.lent, self.letter.block
        if self.lent is not None:
            pool.lend(self.lent)
        if former is not None:
            pool.give(former)

    def give_back(self, pool: Pool) -> None:
        """Nobody reads its arguments any more."""
        for block in (self.lent, self.letter.block if self.alone else None):
            if block is not None:
                pool.give(block)
        self.lent = None


@dataclass(slots=True)
class Seat:
    """A worker's place: the process that holds it now, and what it has to do."""

    number: int
    members: list[int]
    line: Line
    life: int = 0
    ready: bool = False  # its members are made
    since: float = 0.0  # when it last began something
    overdue: bool = False  # past its deadline, and being killed
    reader: Reader | None = None  # of its process's blocks
    host: str = ""  # whose memory it can read
    pid: int = 0
    stop: Stop = NOWHERE  # where it takes parcels from others
    lacks: int = 0  # a call whose arrays were gone from its host before it could read them
    sent: deque[Call] = field(default_factory=deque)  # not yet answered, in order
    unsent: deque[Call] = field(default_factory=deque)  # the last of these, which are not on their way yet
    released: list[int] = field(default_factory=list)  # its blocks that we have read
    pace: float = 0.0  # seconds a call takes it, smoothed
    past: Past = field(default_factory=Past)

    @property
    def name(self) -> bytes:
        """What its process is called at the socket."""
        return b"%d.%d" % (self.number, self.life)

    @property
    def told(self) -> int:
        """Calls that it has been sent and has not answered."""
        return len(self.sent) - len(self.unsent)

    @property
    def under_way(self) -> int:
        return len(self.sent)

    @property
    def room(self) -> int:
        """Calls for a moment's work."""
        if not self.ready:
            return 0
        return min(MOST_AHEAD, max(1, int(AHEAD_S / self.pace))) if self.pace else 1

    def late(self, deadline_s: float) -> float:
        """Seconds by which it is past its deadline, where something is expected of it; else nothing."""
        return time.monotonic() - self.since - deadline_s if self.told or not self.ready else 0.0

    def answered(self, numbers: list[int]) -> list[Call]:
        """The calls that answers of these numbers belong to; 0 says that its members are made.

        Raises `ProtocolError` where they are not the next.
        """
        if numbers == [0] and not self.ready:
            return [Call(0, "", self.members, Letter(None), stateful=True)]
        calls = [*islice(self.sent, len(numbers))]
        if not 0 < len(numbers) <= self.told or numbers != [call.number for call in calls]:
            raise ProtocolError(f"answers to calls {numbers}, which are not the next")
        return calls
