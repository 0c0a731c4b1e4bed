"""The workers of a group: their start and end, failure detection and replacement.

A worker runs its calls in order, and may be sent some calls before it has answered the previous ones. With each answer
a member sends its state. A worker that dies or hangs is replaced: its members are made again in their last known state,
and unanswered calls are sent again. Every call is therefore answered exactly once.

The pool notices deaths and deadlines. `Sender` sends calls, `Inbox` receives messages, and `lifecycle.py` is the table
of a worker's states and events.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from functools import partial

import zmq

from evorl.cluster.transport.connection import Bytes, Payload
from evorl.cluster.transport.wire import Kind
from evorl.cluster.workers.calls import States, member_error
from evorl.cluster.workers.driver_socket import DriverSocket
from evorl.cluster.workers.failure_policy import NO_CALL, record_death
from evorl.cluster.workers.handle import WorkerHandle
from evorl.cluster.workers.heartbeats import TICK_S, HeartbeatMonitor
from evorl.cluster.workers.inbox import Inbox
from evorl.cluster.workers.launcher import Exit, Launcher
from evorl.cluster.workers.lifecycle import Event
from evorl.cluster.workers.process import Process
from evorl.cluster.workers.sender import Sender
from evorl.util.errors import full_name

log = logging.getLogger("evorl")

SHUTDOWN_S = 1.0  # for the members of a group to close


class WorkerPool:
    """The workers of a launcher. Member m runs in worker m mod len(handles)."""

    def __init__(self, launcher: Launcher, size: int, deadline_s: float, plain: Sequence[type[Exception]]) -> None:
        self.launcher, self.size = launcher, size
        self.replaced = 0  # workers
        self.member_error = partial(member_error, {full_name(kind): kind for kind in plain})
        self._token = secrets.token_bytes(16)
        workers = min(launcher.workers, size)
        self.handles = [
            WorkerHandle(w, list(range(w, size, workers)), Process.started(self._token, w, 0)) for w in range(workers)
        ]
        self.heartbeats = HeartbeatMonitor(launcher, self.handles, deadline_s)
        self.socket = DriverSocket(launcher)
        self.sender = Sender(self.socket, launcher.host)
        self.inbox = Inbox(self.socket, self.sender, self.handles, self.member_error)
        try:
            self.socket.open(self._token, 2 * workers)  # each may have a receiver
            for handle in self.handles:
                self._start(handle)
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _start(self, handle: WorkerHandle) -> None:
        self.launcher.start(self._token, handle.number, handle.process.life)

    def _wait_until_ready(self) -> None:
        while not all(handle.ready for handle in self.handles):
            self.poll(TICK_S)

    def handle_of(self, member: int) -> WorkerHandle:
        return self.handles[member % len(self.handles)]

    def states(self) -> list[Bytes | None]:
        """Return the last known state of each member, serialized."""
        return [self.handle_of(member).member_states[member] for member in range(self.size)]

    def restore(self, states: States) -> None:
        """Make every member again, in the given state."""
        self._wait_until_ready()  # a worker that is just being replaced would make its members twice
        for handle in self.handles:
            handle.member_states = {member: states[member] for member in handle.members}
            self.sender.enter(handle, Event.RESTORE)
        self._wait_until_ready()

    @property
    def refused(self) -> int:
        """Return the number of refused messages and connections."""
        return self.inbox.refused + self.socket.refused

    def close(self) -> None:
        """Stop the workers, so that their members can close; kill those that do not exit in time."""
        if self.socket.closed:
            return
        try:
            self._shut_down_workers()
        finally:  # also if no process can be stopped any more
            self.launcher.close()
            self.socket.close()
            self.sender.close()
            for handle in self.handles:
                handle.clear()

    def _shut_down_workers(self) -> None:
        ready = [handle for handle in self.handles if handle.ready]
        for handle in ready:
            self.sender.send(handle, Kind.STOP, None, Payload(None))
        running, ends = {(handle.number, handle.process.life) for handle in ready}, time.monotonic() + SHUTDOWN_S
        while running and time.monotonic() < ends:
            zmq.select([] if self.launcher.watch is None else [self.launcher.watch], [], [], TICK_S)
            running -= {(death.worker, death.life) for death in self.launcher.exits(closing=True)}

    # -------------------------------------------------------------- messages, deadlines and deaths

    def poll(self, timeout_s: float) -> None:
        """Handle received messages, and replace workers that have ended. Raises `MemberLost`."""
        self._receive_pending(timeout_s)
        if self.heartbeats.is_due():
            for death in self.heartbeats.kill_overdue(self._receive_pending):
                self._replace(death)
            self.sender.check_deadlines()

    def _receive_pending(self, timeout_s: float) -> None:
        received, ended = self.socket.wait(timeout_s)
        if received:
            self.inbox.drain()
        if ended:
            for death in self.heartbeats.exits():
                self._replace(death)

    def _replace(self, death: Exit) -> None:
        """Start a new process for a worker. Raises `MemberLost`."""
        handle = self.handles[death.worker]
        self.inbox.drain()  # messages that it sent before it died
        call = NO_CALL if handle.calls.first is None else handle.calls.first.number
        log.warning("%s", record_death(death, handle.activity, call, handle.failures))
        self.replaced += 1
        self.sender.remove_worker(handle)
        self.inbox.remove(handle)
        handle.replace_process()
        self.inbox.add(handle)
        self.sender.scheduler.update(handle)
        self._start(handle)
