"""A worker: the process that carries some members of a group and does what the driver says."""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import zmq

from evorl.cluster.core import Make, public
from evorl.cluster.curve import Pass
from evorl.cluster.gate import present
from evorl.cluster.host import here
from evorl.cluster.line import Letter, Line, bulk, dumps, loads, messages
from evorl.cluster.memory import Pool, Reader
from evorl.cluster.wire import Bulk, Kind, ProtocolError, unpack

PATIENCE_MS = 1000  # between looks at whether the driver is still there
ROUND_S = 2e-4  # so long the answer to a quick call may wait for the next ones, to go in one message
BUSY_S = 0.1  # a worker with many members says at most so often that one more is done
NOBODY = -1
Mark = Callable[[int], None]
"""Takes note of which member the worker is busy with, or `NOBODY`."""


class Ask(NamedTuple):
    """A call to some members."""

    number: int
    method: str
    members: list[int]
    stateful: bool  # their states are asked for
    args: list[Any]


class Worker:
    """Members, and the calls that wait for them."""

    def __init__(self, make: Make, line: Line, socket: zmq.Socket[bytes], host: str, shared: bool, mark: Mark) -> None:
        self.make, self.line, self.socket, self.mark = make, line, socket, mark
        self.members: dict[int, Any] = {}
        self.waiting: deque[Ask] = deque()
        self.host, self.shared = host, shared
        self.pool = Pool()
        self.reader: Reader | None = None  # of the driver's blocks
        self.going = True
        self.spoke = 0.0  # when

    def run(self, alive: Callable[[], bool]) -> None:
        """Serve until told to stop, or until ``alive`` says that the driver is gone."""
        self._say(Kind.HELLO, [os.getpid(), self.host], Letter(None))
        while self.going:
            if self.waiting or self.socket.poll(PATIENCE_MS):
                self._read()
                self._work()
            elif not alive():
                return
        self.close()

    def _read(self) -> None:
        """Take all that has come."""
        while self.going:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            header = self.line.check(frames)
            memory, _ = bulk(header, frames, self.reader)
            self.line.accept(header)
            lent = memoryview(memory).toreadonly()  # by the driver, until the call is answered
            content = unpack(frames[2], lent, copy=header.bulk != Bulk.SHARED)
            self._take(header.kind, unpack(frames[1]), content)

    def _take(self, kind: Kind, envelope: Any, content: Any) -> None:
        if kind == Kind.STOP:
            self.going = False
        elif kind == Kind.ADOPT:
            self.reader = Reader(envelope)
            self.waiting.clear()  # the driver sends again what is not answered
            made = [self._adopt(index, state) for index, state in content]
            states = [
                self._state(index)[0] if fine else None for (index, _), (fine, _) in zip(content, made, strict=True)
            ]
            self._answer([((0, states), self._packed(made))])
        elif kind == Kind.CALL:
            released, calls = envelope
            for block in released:
                self.pool.give(block)
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

    def _adopt(self, index: int, state: bytes | None) -> list[Any]:
        """Make a member anew, from its packed state where it had one."""

        def make() -> None:
            if (former := self.members.pop(index, None)) is not None:
                _close(former)
            self.members[index] = self.make(index)
            if state is not None:
                self.members[index].load_state_dict(loads(state))

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
        self.mark(NOBODY)
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
    socket.connect(endpoint)
    try:
        Worker(make, Line(token, worker, life), socket, host, driver in (None, host), mark).run(alive)
    finally:
        socket.close()
        context.term()
