"""The worker process: runs some members of a group and answers the driver's calls to them."""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import zmq

from evorl.cluster.core import Make, public_method
from evorl.cluster.transport.authentication import connect, present_token
from evorl.cluster.transport.broadcast_relay import HELD, NO_RELAY, Relay
from evorl.cluster.transport.connection import (
    Bytes,
    Connection,
    Payload,
    bulk,
    dumps_array,
    loads,
    messages,
    receiver_name,
)
from evorl.cluster.transport.curve import Credentials
from evorl.cluster.transport.host import host_id
from evorl.cluster.transport.shared_memory import BlockPool, Reader
from evorl.cluster.transport.wire import Bulk, Header, Kind, ProtocolError, cut, unpack
from evorl.cluster.workers.receiver import Receiver
from evorl.util.errors import kinds_of
from evorl.util.heartbeat import send_heartbeat

DRIVER_CHECK_MS = 1000  # interval of an idle worker's checks whether the driver is alive
BATCH_S = 2e-4  # longest wait of a quick call's answer for further answers of the same message
HEARTBEAT_S = 0.1  # shortest interval between heartbeats
BORROWED = (Bulk.SHARED, Bulk.HELD)  # arrays that are read in place
IDLE = -1
Mark = Callable[[int], None]
"""Records the member that the worker runs, or `IDLE`."""


class Request(NamedTuple):
    """A call to some members."""

    number: int
    method: str
    members: list[int]
    stateful: bool  # the answer includes their states
    args: list[Any]


class Worker:
    """Some members of a group, and the queue of calls to them."""

    def __init__(
        self,
        make: Make,
        connection: Connection,
        socket: zmq.Socket[bytes],
        host: str,
        receiver: Receiver | None,
        mark: Mark,
    ) -> None:
        """Serve members of ``make`` over ``socket``.

        ``receiver``: None if driver and worker can read each other's memory.
        """
        self.make, self.connection, self.socket, self.mark = make, connection, socket, mark
        self.members: dict[int, Any] = {}
        self.queue: deque[Request] = deque()
        self.host, self.receiver = host, receiver
        self.block_pool = BlockPool()  # for answers
        self.reader: Reader | None = None  # of the driver's blocks
        self.host_reader: Reader | None = None  # of the worker that stores broadcasts for this host
        self.missing_call: int | None = None  # this call and all later ones have to be sent again
        self.running = True
        self.last_sent = 0.0  # time

    def run(self, alive: Callable[[], bool]) -> None:
        """Serve until the driver's stop message, or until ``alive`` returns False: the driver has ended."""
        send_heartbeat.set(self._beat)
        address, secret = NO_RELAY, b""
        if self.receiver is not None:
            address, secret = self.receiver.address, self.receiver.secret
            self.receiver.start()
        self._send(Kind.HELLO, [os.getpid(), self.host, address.endpoint, address.key, secret], Payload(None))
        while self.running:
            if self.receiver is not None:
                self.receiver.check()
            if self.queue or self.socket.poll(DRIVER_CHECK_MS):
                self._receive()
                self._run_calls()
            elif not alive():
                return
        self.close()

    def _receive(self) -> None:
        """Handle all received messages."""
        while self.running:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            header = self.connection.check(frames)
            memory = self._bulk_of(header, frames)
            self.connection.accept(header)
            envelope = unpack(frames[1])
            if header.kind != Kind.CALL or self._accepts(envelope, memory):
                lent = memoryview(memory).toreadonly()  # the driver's until the call is answered
                self._handle(header.kind, envelope, unpack(frames[2], lent, header.bulk not in BORROWED))

    def _bulk_of(self, header: Header, frames: list[bytes]) -> Any:
        """Return a message's bulk, or None if it does not exist any more."""
        if header.bulk != Bulk.HELD:
            return bulk(header, frames, self.reader)[0]
        pid, fd = HELD.unpack(frames[3])
        if self.host_reader is None or self.host_reader.pid != pid:
            self.host_reader = Reader(pid)
        try:
            return self.host_reader.view(fd, header.size)
        except (OSError, ValueError):
            return None

    def _accepts(self, envelope: Any, memory: Any) -> bool:
        """Release blocks that the driver has read; return whether to run the calls: not if earlier arrays are gone."""
        released, ((number, *_), *_) = envelope
        if self.receiver is None:
            for block in released:
                self.block_pool.release(block)
        else:
            self.receiver.released.extend(released)
        if self.missing_call in (None, number):
            self.missing_call = number if memory is None else None
            if memory is None:
                self._send(Kind.MISSING, number, Payload(None))
        return self.missing_call is None

    def _handle(self, kind: Kind, envelope: Any, content: Any) -> None:
        if kind == Kind.STOP:
            self.running = False
        elif kind == Kind.MAKE:
            self.reader = Reader(envelope)
            self.queue.clear()  # the driver sends unanswered calls again
            self.missing_call = None
            own, recovery_state = content
            made = [self._make_member(index, state, recovery_state) for index, state in own]
            states = [self._state(index)[0] if done else None for (index, _), (done, _) in zip(own, made, strict=True)]
            self._answer([(0, self._packed(made, states))])
        elif kind == Kind.CALL:
            _, calls = envelope
            self.queue.extend(Request._make([*call, args]) for call, args in zip(calls, content, strict=True))
        else:
            raise ProtocolError(f"a driver does not send {kind.name}")

    def _run_calls(self) -> None:
        """Run queued calls for `BATCH_S`, at least one; stop after a stateful one."""
        until = time.perf_counter() + BATCH_S
        done = []
        while self.running and self.queue:
            request = self.queue.popleft()
            done.append(self._result(request))
            if request.stateful or time.perf_counter() > until:
                break
        self._answer(done)

    def _result(self, request: Request) -> tuple[int, Payload]:
        """Return the answer to a call, packed before the next call can change its arrays."""
        outcomes = self._outcomes(request)
        if not request.stateful:
            return request.number, self._packed(outcomes, [None] * len(outcomes))
        states = [self._state(index) for index in request.members]
        outcomes = [failure or outcome for outcome, (_, failure) in zip(outcomes, states, strict=True)]
        return request.number, self._packed(outcomes, [state for state, _ in states])

    def _outcomes(self, request: Request) -> list[list[Any]]:
        return [self._call(index, request.method, request.args) for index in request.members]

    def _make_member(self, index: int, state: Bytes | None, recovery_state: Any) -> list[Any]:
        """Make a member and load the recovery state, if any, then its own serialized state, if any."""

        def make() -> None:
            if (former := self.members.pop(index, None)) is not None:
                _close(former)
            self.members[index] = self.make(index)
            if recovery_state is not None:
                self.members[index].load_state_dict(recovery_state)
            if state is not None:
                self.members[index].load_state_dict(loads(state.data))

        return self._try(index, make)

    def _call(self, index: int, method: str, args: list[Any]) -> list[Any]:
        return self._try(index, lambda: getattr(self.members[index], public_method(method))(*args))

    def _try(self, index: int, work: Callable[[], Any]) -> list[Any]:
        """Return the outcome of a member's work. Raises MemoryError, as a new process may have enough memory."""
        self.mark(index)
        try:
            outcome = [True, work()]
        except MemoryError:
            raise
        except Exception as error:
            outcome = _failure(error)
        self.mark(IDLE)
        self._beat()
        return outcome

    def _beat(self) -> None:
        if time.monotonic() - self.last_sent > HEARTBEAT_S:
            self._send(Kind.HEARTBEAT, None, Payload(None))

    def _state(self, index: int) -> tuple[Bytes | None, list[Any] | None]:
        """Return a member's serialized state (None without `state_dict`), or the failure to produce it."""
        member = self.members[index]
        try:
            return (dumps_array(member.state_dict()) if hasattr(member, "state_dict") else None), None
        except MemoryError:  # of this process: another may have room
            raise
        except Exception as error:
            return None, _failure(error)

    def _packed(self, outcomes: list[list[Any]], states: list[Bytes | None]) -> Payload:
        """Pack outcomes and states; outcomes that cannot be sent become a failure of the member."""
        pool = self.block_pool if self.receiver is None else None
        try:
            return Payload([outcomes, states], pool)
        except TypeError as error:
            return Payload([[_failure(error)] * len(outcomes), states], pool)

    def _answer(self, replies: list[tuple[int, Payload]]) -> None:
        for numbers, payload in messages(replies):
            self._send(Kind.ANSWER, numbers, payload)

    def _send(self, kind: Kind, envelope: Any, payload: Payload) -> None:
        self.socket.send_multipart(cut(self.connection.pack(kind, envelope, payload)))
        self.last_sent = time.monotonic()

    def close(self) -> None:
        for member in self.members.values():
            _close(member)


def _close(member: Any) -> None:
    if hasattr(member, "close"):
        member.close()


def _failure(error: Exception) -> list[Any]:
    """Return the outcome of a call that raised: names of the error's classes, message and traceback."""
    texts = (str(error), "".join(traceback.format_exception(error)))
    return [False, [kinds_of(error), *(text.encode(errors="replace").decode() for text in texts)]]


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
    keys: Credentials | None = None,
    mark: Mark = lambda member: None,
) -> None:
    """Run worker ``worker`` of the group at ``endpoint`` until the group ends.

    ``host`` (default: this process's) and ``driver`` (default: the same) identify the hosts of worker and driver;
    ``keys`` are the credentials for an endpoint with CURVE. ``mark`` is called with the member that runs.
    """
    host = host_id() if host is None else host
    context = zmq.Context()

    def connected(name: bytes) -> zmq.Socket[bytes]:
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.identity = name
        socket.sndhwm = socket.rcvhwm = 0  # no limit: bounded by the calls in flight
        if keys is not None:
            keys.apply_to(socket)
        else:
            present_token(socket, token)
        connect(socket, endpoint)
        return socket

    socket, receiver = connected(b"%d.%d" % (worker, life)), None
    if driver not in (None, host):
        relay = Relay(context, endpoint, token, (worker, life), keys) if endpoint.startswith("tcp:") else None
        connection = Connection(token, worker, life)
        reader = getattr(make, "feed_reader", None)
        receiver = Receiver(connected(receiver_name(worker, life)), relay, connection, reader)
    try:
        Worker(make, Connection(token, worker, life), socket, host, receiver, mark).run(alive)
    finally:
        if receiver is not None:
            receiver.close()
        socket.close()
        context.term()
