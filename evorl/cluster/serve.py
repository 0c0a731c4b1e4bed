"""A worker: the process that carries some members of a group and does what the driver says."""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from evorl.cluster.core import Make, public
from evorl.cluster.curve import Pass
from evorl.cluster.gate import present
from evorl.cluster.host import here
from evorl.cluster.line import Letter, Line, bulk, dumps, loads
from evorl.cluster.memory import Pool, Reader
from evorl.cluster.wire import Kind, ProtocolError, unpack

PATIENCE_MS = 1000  # between looks at whether the driver is still there
BUSY_S = 0.1  # a worker with many members says at most so often that one more is done
NOBODY = -1
Mark = Callable[[int], None]
"""Takes note of which member the worker is busy with, or `NOBODY`."""


class Worker:
    """Members, and the calls that wait for them."""

    def __init__(self, make: Make, line: Line, socket: zmq.Socket[bytes], host: str, shared: bool, mark: Mark) -> None:
        self.make, self.line, self.socket, self.mark = make, line, socket, mark
        self.members: dict[int, Any] = {}
        self.waiting: deque[tuple[Kind, Any, Any]] = deque()
        self.failed: dict[int, list[Any]] = {}  # posts, until the member's next call
        self.host, self.shared = host, shared
        self.pool = Pool()
        self.reader: Reader | None = None  # of the driver's blocks
        self.going = True
        self.spoke = 0.0  # when

    def run(self, alive: Callable[[], bool]) -> None:
        """Serve until told to stop, or until ``alive`` says that the driver is gone."""
        self._say(Kind.HELLO, [os.getpid(), self.host], Letter(None))
        while self.going:
            if not self._listen(0 if self.waiting else PATIENCE_MS) and not alive():
                return
            if self.going and self.waiting:
                self._work(*self.waiting.popleft())
        self.close()

    def _listen(self, timeout_ms: int) -> bool:
        """Read all that has come; whether there was anything, or something waits."""
        heard = bool(self.waiting)
        while self.going and self.socket.poll(0 if heard else timeout_ms):
            heard = True
            frames = self.socket.recv_multipart()
            header = self.line.check(frames)
            memory, _ = bulk(header, frames, self.reader)
            self.line.accept(header)
            self._take(header.kind, unpack(frames[1]), unpack(frames[2], memory))
        return heard

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
            self._send([0, states], made)
        elif kind == Kind.POST:  # of each method only the newest matters; it runs before the next call
            posts = [one for one in self.waiting if one[0] == Kind.POST and one[1][1] != envelope[1]]
            calls = [one for one in self.waiting if one[0] != Kind.POST]
            self.waiting = deque([*posts, (kind, envelope, content), *calls])
        elif kind == Kind.CALL:
            self.waiting.append((kind, envelope, content))
        else:
            raise ProtocolError(f"a driver does not send {kind.name}")

    def _work(self, kind: Kind, envelope: Any, args: Any) -> None:
        number, method, indices, released, stateful = envelope
        for block in released:
            self.pool.give(block)
        outcomes = [self._call(index, method, args) for index in indices]
        if kind == Kind.POST:
            self.failed |= {index: one for index, one in zip(indices, outcomes, strict=True) if not one[0]}
            return
        states = [self._state(index) if stateful else (None, None) for index in indices]
        outcomes = [failure or outcome for outcome, (_, failure) in zip(outcomes, states, strict=True)]
        self._send([number, [state for state, _ in states]], outcomes)

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
        if (failed := self.failed.pop(index, None)) is not None:
            return failed
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

    def _send(self, envelope: list[Any], outcomes: list[Any]) -> None:
        """An answer; outcomes that cannot be sent are the member's failure, said to the caller."""
        try:
            letter = Letter(outcomes, self.pool if self.shared else None)
        except TypeError as error:
            letter = Letter([_failure(error)] * len(outcomes))
        self._say(Kind.ANSWER, envelope, letter)

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
