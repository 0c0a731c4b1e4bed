"""The workers of a group: assignment of calls, failure detection and replacement.

A worker runs its calls in order, and may be sent some calls before it has answered the previous ones. With each answer
a member sends its state. A worker that dies or hangs is replaced: its members are made again in their last known state,
and unanswered calls are sent again. Every call is therefore answered exactly once.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence

import zmq

from evorl.cluster.core import MemberError, Position
from evorl.cluster.transport.connection import Connection, Payload, messages
from evorl.cluster.transport.shared_memory import BlockPool, Reader
from evorl.cluster.transport.wire import Failure, Header, Kind, ProtocolError, unpack
from evorl.cluster.workers.broadcast import Broadcaster
from evorl.cluster.workers.driver_socket import MAX_MESSAGES_PER_CALL, DriverSocket
from evorl.cluster.workers.failure_policy import NO_CALL, record_death
from evorl.cluster.workers.feeder import Feeder
from evorl.cluster.workers.handle import MAX_AHEAD, Call, Hello, Outcomes, States, WorkerHandle
from evorl.cluster.workers.heartbeats import TICK_S, HeartbeatMonitor
from evorl.cluster.workers.host_tree import HostTree
from evorl.cluster.workers.launcher import Exit, Launcher
from evorl.cluster.workers.scheduling import Scheduler

log = logging.getLogger("evorl")

SHUTDOWN_S = 1.0  # for the members of a group to close


class WorkerPool:
    """The workers of a launcher, and the calls in flight to them. Member m runs in worker m mod len(handles)."""

    def __init__(self, launcher: Launcher, size: int, deadline_s: float, plain: Sequence[type[Exception]]) -> None:
        self.launcher = launcher
        self._refused = 0  # messages that were not accepted
        self.replaced = 0  # workers
        self.states: list[bytes | None] = [None] * size  # of each member, serialized
        self.recovery_state: Callable[[], object] = lambda: None  # state for members without `state_dict`
        self.block_pool = BlockPool()
        self.tree = HostTree(self._send_to_receiver)
        self.broadcaster = Broadcaster(self.block_pool, self.tree)
        self.feeder = Feeder(self.tree, self._send_to_receiver)
        self.sent = self.relayed = 0  # bytes of arrays to other hosts: by the driver, and by workers
        self._plain = {one.__name__: one for one in plain}
        self._token, now = secrets.token_bytes(16), time.monotonic()
        workers = min(launcher.workers, size)
        self.handles = [
            WorkerHandle(w, list(range(w, size, workers)), Connection(self._token, w, 0), last_sign=now)
            for w in range(workers)
        ]
        self._by_name = {name: handle for handle in self.handles for name in (handle.name, handle.receiver_name)}
        self._making = {handle.number for handle in self.handles}  # workers whose members are not made yet
        self.scheduler = Scheduler[WorkerHandle](MAX_AHEAD)
        self.heartbeats = HeartbeatMonitor(launcher, self.handles, deadline_s)
        self.socket = DriverSocket(launcher)
        try:
            self.socket.open(self._token, 2 * workers)  # each may have a receiver
            for handle in self.handles:
                launcher.start(self._token, handle.number, handle.life)
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self) -> None:
        while self._making:
            self.poll(TICK_S)

    def handle_of(self, member: int) -> WorkerHandle:
        return self.handles[member % len(self.handles)]

    def restore(self, states: list[bytes | None]) -> None:
        """Make every member again, in the given state."""
        self._wait_until_ready()  # a worker that is just being replaced would make its members twice
        self.states = [*states]
        for handle in self.handles:
            self._send_members(handle)
        self._wait_until_ready()

    @property
    def refused(self) -> int:
        """Return the number of refused messages and connections."""
        return self._refused + self.socket.refused

    def close(self) -> None:
        """Stop the workers, so that their members can close; kill those that do not exit in time."""
        if self.socket.closed:
            return
        try:
            self._shut_down_workers()
        finally:  # also if no process can be stopped any more
            self.launcher.close()
            self.socket.close()
            self.broadcaster.close()
            self.block_pool.close()
            for handle in self.handles:
                handle.clear()

    def _shut_down_workers(self) -> None:
        ready = [handle for handle in self.handles if handle.ready]
        for handle in ready:
            self._send(handle, Kind.STOP, None, Payload(None))
        running, ends = {(handle.number, handle.life) for handle in ready}, time.monotonic() + SHUTDOWN_S
        while running and time.monotonic() < ends:
            zmq.select([] if self.launcher.watch is None else [self.launcher.watch], [], [], TICK_S)
            running -= {(gone.worker, gone.life) for gone in self.launcher.exits()}

    # -------------------------------------------------------------- sending

    def dispatch(self, handle: WorkerHandle, calls: Sequence[Call]) -> None:
        """Assign calls to a worker and send them."""
        self.assign(handle, calls)
        self.push(handle)

    def assign(self, handle: WorkerHandle, calls: Sequence[Call]) -> None:
        """Assign calls to a worker without sending them: see `push`."""
        position = self.feeder.position()
        for call in calls:
            call.position = position
        handle.sent.extend(calls)
        handle.unsent.extend(calls)
        self.scheduler.update(handle)

    def push(self, handle: WorkerHandle) -> None:
        """Send the unsent calls of a ready worker, up to one whose arrays are being sent to its host."""
        self.feeder.update()
        if not handle.ready:
            return
        self.feeder.show(handle)
        if not handle.in_flight:
            handle.last_sign = handle.calls_began = time.monotonic()
        calls = []
        while handle.unsent and not self._is_pending(handle, handle.unsent[0]):
            calls.append(handle.unsent.popleft())
            if handle.host == self.launcher.host:
                calls[-1].hold_arguments(self.block_pool)
        parts = (((one.number, one.method, one.members, one.stateful), one.payload) for one in calls)
        for envelopes, payload in messages(parts):
            released, handle.released = handle.released, []
            place = b"" if envelopes[0][0] == handle.missing_call else self.broadcaster.location(handle, payload)
            self._send(handle, Kind.CALL, (released, envelopes), payload, place)

    def _is_pending(self, handle: WorkerHandle, call: Call) -> bool:
        if handle.host == self.launcher.host:
            return False
        arrays = call.number != handle.missing_call and self.broadcaster.is_pending(handle, call.payload)
        return arrays or self.feeder.is_pending(handle, call)

    def _send_to_receiver(self, handle: WorkerHandle, kind: Kind, envelope: object, payload: Payload) -> None:
        assert handle.receiver is not None
        frames = handle.receiver.pack(kind, envelope, payload, shared=False)
        self.sent += payload.size
        if not self.socket.send(handle.receiver_name, frames):  # its process has ended
            handle.receiver.sent -= 1

    def _send(self, handle: WorkerHandle, kind: Kind, envelope: object, payload: Payload, place: bytes = b"") -> None:
        near = handle.host == self.launcher.host
        frames = handle.connection.pack(kind, envelope, payload, near, place)
        self.sent += 0 if near or place else payload.size
        if not self.socket.send(handle.name, frames):  # it has ended (its exit follows) or is not connected yet
            handle.connection.sent -= 1  # numbers count from the first message that a worker can receive

    def release_block(self, handle: WorkerHandle, life: int, block: int) -> None:
        """Release a worker's block, whose views are not read any more, so that the worker can reuse it."""
        if life == handle.life:
            handle.released.append(block)

    # -------------------------------------------------------------- receiving

    def member_error(self, member: int, content: Failure) -> Exception:
        """Return the error to raise for a member's failure."""
        kinds, message, trace = content
        plain = next((self._plain[kind] for kind in kinds if kind in self._plain), None)
        if plain is None:
            return MemberError(member, kinds[0], message, trace)
        found = plain(message)
        found.add_note(f"raised by member {member}:\n{trace}".rstrip())
        return found

    def poll(self, timeout_s: float) -> None:
        """Handle received messages, and replace workers that have ended. Raises `MemberLost`."""
        self._receive_pending(timeout_s)
        self._check_deadlines()

    def _receive_pending(self, timeout_s: float) -> None:
        received, ended = self.socket.wait(timeout_s)
        if received:
            self._drain()
        if ended:
            self._handle_exits()

    def _drain(self) -> None:
        for _ in range(MAX_MESSAGES_PER_CALL):
            if not self._receive():
                return

    def _receive(self) -> bool:
        message = self.socket.receive()
        if message is None:
            return False
        identity, *frames = message
        try:
            self._handle_message(identity, frames)
        except ProtocolError as error:
            self._refused += 1
            log.debug("refused a message: %.200s", error)
        return True

    def _handle_message(self, identity: bytes, frames: list[bytes]) -> None:
        handle = self._by_name.get(identity)
        if handle is None:
            raise ProtocolError(f"unknown worker {identity!r}")
        if identity != handle.name:
            return self._handle_receiver_message(handle, frames)
        header = handle.connection.check(frames)
        if header.kind == Kind.HELLO:
            self._handle_hello(handle, header, unpack(frames[1], form=Hello))
        elif header.kind == Kind.ANSWER:
            self._handle_answers(handle, handle.accept_answers(header, frames))
        elif header.kind == Kind.HEARTBEAT:
            handle.connection.accept(header)
            handle.last_sign = time.monotonic()
        elif header.kind == Kind.MISSING:
            handle.accept_missing(header, unpack(frames[1], form=int))
            self.push(handle)
        else:
            raise ProtocolError(f"a worker does not send {header.kind.name}")

    def _handle_hello(self, handle: WorkerHandle, header: Header, hello: Hello) -> None:
        handle.accept_hello(header, hello)
        if handle.host == self.launcher.host:
            handle.reader = Reader(handle.pid)
            self._send_members(handle)
        elif handle.receiver is not None:
            self._add_to_tree(handle)

    def _add_to_tree(self, handle: WorkerHandle) -> None:
        """Let a worker on another host begin, which has connected, and its receiver too."""
        self.tree.add_worker(handle)
        self._send_members(handle)

    def _handle_receiver_message(self, handle: WorkerHandle, frames: list[bytes]) -> None:
        connection = handle.receiver or Connection(self._token, handle.number, handle.life)
        header = connection.check(frames)
        if header.kind == Kind.RECEIVING and handle.receiver is None:
            handle.receiver = connection
            if handle.host not in ("", self.launcher.host):
                self._add_to_tree(handle)
        elif handle.receiver is None or handle.host in ("", self.launcher.host):
            raise ProtocolError(f"{header.kind.name} of a worker that has no receiver")
        elif header.kind == Kind.STORED:
            self._handle_stored(handle, unpack(frames[1], form=tuple[int, int, int]))
        elif header.kind == Kind.RELAY_COUNTS:
            self._handle_relay_counts(unpack(frames[1], form=tuple[int, int]))
        elif header.kind == Kind.FOLLOWED:
            self._handle_followed(handle, unpack(frames[1], form=tuple[int, Position | None, int]))
        elif header.kind == Kind.LOCATED:
            pid, fd, found = unpack(frames[1], form=tuple[int, int, bool])
            self.feeder.confirm_located(handle, (pid, fd), found)
            self.push(handle)
        else:
            raise ProtocolError(f"a receiver does not send {header.kind.name}")
        connection.accept(header)

    def _handle_relay_counts(self, content: tuple[int, int]) -> None:
        """Add the messages that a worker's relay refused and the bytes that it forwarded."""
        refused, relayed = content
        if min(content) < 0:
            raise ProtocolError(f"{refused} refused, {relayed} bytes forwarded")
        self._refused += refused
        self.relayed += relayed

    def _handle_stored(self, handle: WorkerHandle, content: tuple[int, int, int]) -> None:
        """Record that a worker stores a broadcast for its host."""
        number, fd, block = content
        if not 0 <= fd < 1 << 31 or block < 0:
            raise ProtocolError(f"a broadcast at {fd}, {block}")
        self.broadcaster.confirm(handle, number, fd, block)
        self._push_host(handle.host)

    def _handle_followed(self, handle: WorkerHandle, content: tuple[int, Position | None, int]) -> None:
        """Record what the copy of the feed on a worker's host holds."""
        send_number, position, fd = content
        if not -1 <= fd < 1 << 31:
            raise ProtocolError(f"a copy of the feed at {fd}")
        self.feeder.confirm(handle, send_number, position, fd)
        self._push_host(handle.host)

    def _push_host(self, host: str) -> None:
        for handle in self.tree.workers_of(host):
            self.push(handle)

    def _send_members(self, handle: WorkerHandle) -> None:
        self._mark_not_ready(handle)
        own = [(member, self.states[member]) for member in handle.members]
        self._send(handle, Kind.MAKE, os.getpid(), Payload([own, self.recovery_state()]))

    def _mark_not_ready(self, handle: WorkerHandle) -> None:
        """Assign no calls to a worker until its members are made."""
        handle.ready, handle.last_sign = False, time.monotonic()
        self._making.add(handle.number)
        self.scheduler.update(handle)

    def _handle_answers(self, handle: WorkerHandle, answers: list[tuple[Call, States, Outcomes]]) -> None:
        for call, states, outcomes in answers:
            if call.number:
                self._complete_call(handle, call, states, outcomes)
            else:
                self._handle_members_made(handle, states, outcomes)
        self.scheduler.update(handle)

    def _complete_call(self, handle: WorkerHandle, call: Call, states: States, outcomes: Outcomes) -> None:
        handle.sent.popleft()
        handle.failures.answered += 1
        call.outcomes, call.states = outcomes, states
        if call.answer_queue is not None:
            call.answer_queue.append(call)
        call.release_arguments(self.block_pool)
        for member, state in zip(call.members, states, strict=True):
            if state is not None:
                self.states[member] = state

    def _handle_members_made(self, handle: WorkerHandle, states: States, outcomes: Outcomes) -> None:
        """Continue where the worker's former process stopped; its members are made now."""
        for member, state, (succeeded, content) in zip(handle.members, states, outcomes, strict=True):
            if not succeeded:
                raise self.member_error(member, content)
            self.states[member] = state
        handle.ready = True
        self._making.discard(handle.number)
        if not handle.sent:
            handle.failures.begin(NO_CALL)
        handle.unsent = deque(handle.sent)
        self.push(handle)

    # -------------------------------------------------------------- deaths

    def _check_deadlines(self) -> None:
        """Replace overdue workers, and push calls that waited for overdue broadcasts."""
        if not self.heartbeats.is_due():
            return
        for gone in self.heartbeats.kill_overdue(self._receive_pending):
            self._replace(gone)
        for host in self.broadcaster.overdue_hosts():
            self._push_host(host)
        self.feeder.mark_overdue()
        self.feeder.update()

    def _handle_exits(self) -> None:
        for gone in self.heartbeats.exits():
            self._replace(gone)

    def _replace(self, gone: Exit) -> None:
        """Start a new process for a worker. Raises `MemberLost`."""
        handle = self.handles[gone.worker]
        self._drain()  # messages that it sent before it died
        call = handle.sent[0].number if handle.sent else NO_CALL
        log.warning("%s", record_death(gone, handle.activity, call, handle.failures))
        self.replaced += 1
        waiting = self.broadcaster.remove_receiver(handle) if self.tree.remove_worker(handle) else set[str]()
        self.feeder.remove_worker(handle)
        del self._by_name[handle.name], self._by_name[handle.receiver_name]
        handle.reset()
        self._by_name[handle.name] = self._by_name[handle.receiver_name] = handle
        self._mark_not_ready(handle)
        for host in waiting:
            self._push_host(host)
        self.feeder.update()
        self.launcher.start(self._token, handle.number, handle.life)
