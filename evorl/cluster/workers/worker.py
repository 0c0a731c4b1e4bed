"""A worker: the process that carries some members of a group and does what the driver says."""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import zmq

from evorl.cluster.core import Make, public
from evorl.cluster.transport.authentication import connect, present
from evorl.cluster.transport.broadcast_relay import HELD, NOWHERE, Leg, Parcel, Relay
from evorl.cluster.transport.connection import Letter, Line, bulk, dumps, loads, messages
from evorl.cluster.transport.curve import Pass
from evorl.cluster.transport.host import here
from evorl.cluster.transport.shared_memory import Pool, Reader
from evorl.cluster.transport.wire import Bulk, Header, Kind, ProtocolError, unpack

PATIENCE_MS = 1000  # between looks at whether the driver is still there
ROUND_S = 2e-4  # so long the answer to a quick call may wait for the next ones, to go in one message
BUSY_S = 0.1  # a worker with many members says at most so often that one more is done
LENT = (Bulk.SHARED, Bulk.HELD)  # arrays that are read where they are
IDLE = -1
Mark = Callable[[int], None]
"""Takes note of which member the worker is busy with, or `IDLE`."""


class Ask(NamedTuple):
    """A call to some members."""

    number: int
    method: str
    members: list[int]
    stateful: bool  # their states are asked for
    args: list[Any]


class Worker:
    """Members, and the calls that wait for them."""

    def __init__(
        self,
        make: Make,
        line: Line,
        socket: zmq.Socket[bytes],
        host: str,
        shared: bool,
        relay: Relay | None,
        mark: Mark,
    ) -> None:
        """``shared``: the driver's memory and ours; ``relay``: where workers of other hosts send to."""
        self.make, self.line, self.socket, self.mark = make, line, socket, mark
        self.members: dict[int, Any] = {}
        self.waiting: deque[Ask] = deque()
        self.host, self.shared, self.relay = host, shared, relay
        self.pool = Pool()
        self.reader: Reader | None = None  # of the driver's blocks
        self.mate: Reader | None = None  # of the one that keeps parcels for this host
        self.lacks: int | None = None  # the call from which on all have to come again
        self.poller = zmq.Poller()
        for one in (socket, *(() if relay is None else (relay.socket, *relay.gate.sockets))):
            self.poller.register(one, zmq.POLLIN)
        self.going = True
        self.spoke = 0.0  # when

    def run(self, alive: Callable[[], bool]) -> None:
        """Serve until told to stop, or until ``alive`` says that the driver is gone."""
        door, secret = (NOWHERE, b"") if self.relay is None else (self.relay.door, self.relay.secret)
        self._say(Kind.HELLO, [os.getpid(), self.host, door.address, door.key, secret], Letter(None))
        while self.going:
            if self.waiting or self.poller.poll(PATIENCE_MS):
                self._read()
                self._report()
                self._work()
            elif not alive():
                return
        self.close()

    def _report(self) -> None:
        """Say what has happened at the door."""
        if self.relay is not None and any(news := self.relay.news()):
            self._say(Kind.NEWS, news, Letter(None))

    def _read(self) -> None:
        """Take all that has come."""
        while self.relay is not None and (parcel := self.relay.take()) is not None:
            self._keep(parcel)
        while self.going:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            header = self.line.check(frames)
            memory = self._memory(header, frames)
            self.line.accept(header)
            envelope = unpack(frames[1])
            if header.kind == Kind.PARCEL:
                number, trip, legs = msgspec.convert(envelope, tuple[int, int, list[Leg]])
                self._keep(Parcel(number, trip, legs, memory))
            elif header.kind != Kind.CALL or self._is_next(envelope, memory):
                lent = memoryview(memory).toreadonly()  # by the driver, until the call is answered
                self._take(header.kind, envelope, unpack(frames[2], lent, header.bulk not in LENT))

    def _memory(self, header: Header, frames: list[bytes]) -> Any:
        """A message's bulk; None where it is gone."""
        if header.bulk != Bulk.HELD:
            return bulk(header, frames, self.reader)[0]
        pid, fd = HELD.unpack(frames[3])
        if self.mate is None or self.mate.pid != pid:
            self.mate = Reader(pid)
        try:
            return self.mate.view(fd, header.size)
        except (OSError, ValueError):
            return None

    def _is_next(self, envelope: Any, memory: Any) -> bool:
        """Whether calls are to be made; not those that come after one whose arrays are gone."""
        released, ((number, *_), *_) = envelope
        for block in released:
            self.pool.give(block)
        if self.lacks in (None, number):
            self.lacks = number if memory is None else None
            if memory is None:
                self._say(Kind.LACK, number, Letter(None))
        return self.lacks is None

    def _keep(self, parcel: Parcel) -> None:
        """Pass a parcel on, and keep it for this host."""
        content = memoryview(parcel.content)
        if self.relay is not None:
            self.relay.pass_on(parcel)
        number, block = self.pool.take()
        block.view(len(content))[:] = content
        self._say(Kind.KEPT, [parcel.number, block.fd, number], Letter(None))

    def _take(self, kind: Kind, envelope: Any, content: Any) -> None:
        if kind == Kind.END:
            self.going = False
        elif kind == Kind.ADOPT:
            self.reader = Reader(envelope)
            self.waiting.clear()  # the driver sends again what is not answered
            self.lacks = None
            own, known = content
            made = [self._adopt(index, state, known) for index, state in own]
            states = [self._state(index)[0] if fine else None for (index, _), (fine, _) in zip(own, made, strict=True)]
            self._answer([((0, states), self._packed(made))])
        elif kind == Kind.CALL:
            _, calls = envelope
            self.waiting.extend(Ask._make([*call, args]) for call, args in zip(calls, content, strict=True))
        else:
            raise ProtocolError(f"a driver does not send {kind.name}")

    def _work(self) -> None:
        """Make calls that wait: for a moment, at least one, and none after one with states."""
        until = time.perf_counter() + ROUND_S
        done = []
        while self.going and self.waiting:
            ask = self.waiting.popleft()
            done.append(self._reply(ask))
            if ask.stateful or time.perf_counter() > until:
                break
        self._answer(done)

    def _reply(self, ask: Ask) -> tuple[object, Letter]:
        """What a call gives, packed before another call can change it."""
        outcomes = self._outcomes(ask)
        if not ask.stateful:
            return (ask.number, [None] * len(outcomes)), self._packed(outcomes)
        states = [self._state(index) for index in ask.members]
        outcomes = [failure or outcome for outcome, (_, failure) in zip(outcomes, states, strict=True)]
        return (ask.number, [state for state, _ in states]), self._packed(outcomes)

    def _outcomes(self, ask: Ask) -> list[list[Any]]:
        return [self._call(index, ask.method, ask.args) for index in ask.members]

    def _adopt(self, index: int, state: bytes | None, known: Any) -> list[Any]:
        """Make a member anew, from its packed state where it had one, else from the one that is known of all."""

        def make() -> None:
            if (former := self.members.pop(index, None)) is not None:
                _close(former)
            self.members[index] = self.make(index)
            if state is not None:
                self.members[index].load_state_dict(loads(state))
            elif known is not None:
                self.members[index].load_state_dict(known)

        return self._try(index, make)

    def _call(self, index: int, method: str, args: list[Any]) -> list[Any]:
        return self._try(index, lambda: getattr(self.members[index], public(method))(*args))

    def _try(self, index: int, work: Callable[[], Any]) -> list[Any]:
        """What a member's work gives, or how it fails. Raises MemoryError: another process may have more."""
        self.mark(index)
        try:
            outcome = [True, work()]
        except MemoryError:
            raise
        except Exception as error:
            outcome = _failure(error)
        self.mark(IDLE)
        if time.monotonic() - self.spoke > BUSY_S:
            self._say(Kind.BUSY, None, Letter(None))
        return outcome

    def _state(self, index: int) -> tuple[bytes | None, list[Any] | None]:
        """A member's state as the driver keeps it, unread; or why it has none to send."""
        member = self.members[index]
        try:
            return (dumps(member.state_dict()) if hasattr(member, "state_dict") else None), None
        except Exception as error:
            return None, _failure(error)

    def _packed(self, outcomes: list[list[Any]]) -> Letter:
        """Outcomes that cannot be sent are the member's failure, said to the caller."""
        try:
            return Letter(outcomes, self.pool if self.shared else None)
        except TypeError as error:
            return Letter([_failure(error)] * len(outcomes))

    def _answer(self, replies: list[tuple[object, Letter]]) -> None:
        for envelopes, letter in messages(replies):
            self._say(Kind.ANSWER, envelopes, letter)

    def _say(self, kind: Kind, envelope: Any, letter: Letter) -> None:
        self.socket.send_multipart(self.line.pack(kind, envelope, letter))
        self.spoke = time.monotonic()

    def close(self) -> None:
        for member in self.members.values():
            _close(member)


def _close(member: Any) -> None:
    if hasattr(member, "close"):
        member.close()


def _failure(error: Exception) -> list[Any]:
    """The outcome of a call that raised: the names of its classes, message and traceback."""
    kinds = [one.__name__ for one in type(error).__mro__]
    texts = (str(error), "".join(traceback.format_exception(error)))
    return [False, [kinds, *(text.encode(errors="replace").decode() for text in texts)]]


def serve(
    make: Make,
    endpoint: str,
    token: bytes,
    worker: int,
    life: int,
    alive: Callable[[], bool],
    *,
    driver: str | None = None,
    host: str | None = None,
    keys: Pass | None = None,
    mark: Mark = lambda member: None,
) -> None:
    """Be worker ``worker`` of the group at ``endpoint`` until it ends.

    ``host`` (by default where this process is) and ``driver`` (by default the same) name whose memory each can read;
    ``keys`` open an endpoint that asks for them. ``mark`` is told which member is being called.
    """
    host = here() if host is None else host
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.identity = b"%d.%d" % (worker, life)
    socket.sndhwm = socket.rcvhwm = 0  # bounded by the calls that the driver lets be under way
    if keys is not None:
        keys.show(socket)
    else:
        present(socket, token)
    connect(socket, endpoint)
    shared, relay = driver in (None, host), None
    if not shared and endpoint.startswith("tcp:"):
        relay = Relay(context, endpoint, token, (worker, life), keys)
    try:
        Worker(make, Line(token, worker, life), socket, host, shared, relay, mark).run(alive)
    finally:
        if relay is not None:
            relay.close()
        socket.close()
        context.term()
