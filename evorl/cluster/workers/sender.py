"""What the driver sends: members to make, calls, and the arrays and pieces of the feed that calls need."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence

from evorl.cluster.transport.connection import Payload, messages
from evorl.cluster.transport.shared_memory import BlockPool
from evorl.cluster.transport.wire import Kind
from evorl.cluster.workers.broadcast import Broadcaster
from evorl.cluster.workers.calls import MAX_AHEAD, Call
from evorl.cluster.workers.driver_socket import DriverSocket
from evorl.cluster.workers.feeder import Feeder
from evorl.cluster.workers.handle import WorkerHandle
from evorl.cluster.workers.host_tree import HostTree
from evorl.cluster.workers.lifecycle import TRANSITIONS, Event, State, Unblocks
from evorl.cluster.workers.scheduling import Scheduler


class Sender:
    """Assigns calls to workers, and sends each when its worker can read all that it needs.

    A call waits until its worker is ready, until a broadcast has reached its worker's host or is late, and until the
    feed's copy there has grown enough. So `push` follows an assignment, each event that `Unblocks` workers, and a
    broadcast that is late.
    """

    def __init__(self, socket: DriverSocket, host: str) -> None:
        """``host``: the driver's."""
        self._socket, self.host = socket, host
        self.recovery_state: Callable[[], object] = lambda: None  # what members that are made load first
        self.block_pool = BlockPool()
        self.tree = HostTree(self._send_to_receiver)
        self.broadcaster = Broadcaster(self.block_pool, self.tree)
        self.feeder = Feeder(self.tree, self._send_to_receiver)
        self.scheduler = Scheduler[WorkerHandle](MAX_AHEAD)
        self.sent = 0  # bytes of arrays to other hosts

    # -------------------------------------------------------------- calls

    def dispatch(self, handle: WorkerHandle, calls: Sequence[Call]) -> None:
        """Assign calls to a worker and send them."""
        self.assign(handle, calls)
        self.push(handle)

    def assign(self, handle: WorkerHandle, calls: Sequence[Call]) -> None:
        """Assign calls to a worker without sending them: see `push`."""
        position = self.feeder.position()
        for call in calls:
            call.position = position
        handle.calls.unsent.extend(calls)
        self.scheduler.update(handle)

    def push(self, handle: WorkerHandle) -> None:
        """Send the unsent calls of a ready worker, up to the first one that has to wait."""
        self.feeder.update()
        if not handle.ready:
            return
        self.feeder.show(handle)
        queue, near = handle.calls, self.is_near(handle)
        if not queue.in_flight:
            queue.began = time.monotonic()
            handle.process.signs.renew()
        calls = []
        while queue.unsent and (near or not self._waits(handle, queue.unsent[0])):
            calls.append(queue.send_next())
            if near:
                calls[-1].hold_arguments(self.block_pool)
        parts = (((call.number, call.method, call.members, call.stateful), call.payload) for call in calls)
        for envelopes, payload in messages(parts):
            place = b"" if envelopes[0][0] == queue.missing else self.broadcaster.location(handle, payload)
            self.send(handle, Kind.CALL, (handle.process.take_released(), envelopes), payload, place)

    def _waits(self, handle: WorkerHandle, call: Call) -> bool:
        """Return whether a call waits for its broadcast arrays, or for the feed, on another host."""
        arrays = call.number != handle.calls.missing and self.broadcaster.is_pending(handle, call.payload)
        return arrays or self.feeder.is_pending(handle, call)

    def _push_hosts(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            for handle in self.tree.workers_of(host):
                self.push(handle)

    def check_deadlines(self) -> None:
        """Let no call wait any more for a broadcast that is late; send late pieces of the feed again."""
        self._push_hosts(self.broadcaster.overdue_hosts())
        self.feeder.mark_overdue()
        self.feeder.update()

    # -------------------------------------------------------------- workers

    def enter(self, handle: WorkerHandle, event: Event) -> None:
        """Let a worker enter the state after an event, and push the workers that the event unblocks."""
        former = handle.state
        handle.accept(event)
        if handle.state is not former:
            self.scheduler.update(handle)
            if handle.state is State.MAKING:
                self._make_members(handle)
        unblocks = TRANSITIONS[event].unblocks
        if unblocks is Unblocks.WORKER:
            self.push(handle)
        elif unblocks is Unblocks.HOST:
            self._push_hosts([handle.host])

    def _make_members(self, handle: WorkerHandle) -> None:
        """Let a worker make its members, in their last known states."""
        if not self.is_near(handle):
            self.tree.add_worker(handle)
        handle.process.signs.renew()
        states = [(member, handle.member_states.get(member)) for member in handle.members]
        self.send(handle, Kind.MAKE, os.getpid(), Payload([states, self.recovery_state()]))

    def remove_worker(self, handle: WorkerHandle) -> None:
        """Forget a worker whose process has ended, and push the workers that this unblocks (`Unblocks.BEHIND`)."""
        unblocked = self.broadcaster.remove_worker(handle)
        self.feeder.remove_worker(handle)
        self.tree.remove_worker(handle)
        self._push_hosts(unblocked)
        self.feeder.update()

    def is_near(self, handle: WorkerHandle) -> bool:
        """Return whether a worker has said that it is on the driver's host."""
        return handle.process.host == self.host

    # -------------------------------------------------------------- messages

    def _send_to_receiver(self, handle: WorkerHandle, kind: Kind, envelope: object, payload: Payload) -> None:
        connection = handle.process.receiver
        assert connection is not None
        frames = connection.pack(kind, envelope, payload, shared=False)
        self.sent += payload.size
        if not self._socket.send(handle.process.receiver_name, frames):  # its process has ended
            connection.sent -= 1

    def send(self, handle: WorkerHandle, kind: Kind, envelope: object, payload: Payload, place: bytes = b"") -> None:
        """Send a message to a worker; ``place``: where its host stores the arrays."""
        near, connection = self.is_near(handle), handle.process.connection
        frames = connection.pack(kind, envelope, payload, near, place)
        self.sent += 0 if near or place else payload.size
        if not self._socket.send(handle.process.name, frames):  # it has ended (its exit follows) or is not connected
            connection.sent -= 1  # numbers count from the first message that a worker can receive

    def close(self) -> None:
        self.broadcaster.close()
        self.block_pool.close()
