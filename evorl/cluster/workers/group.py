"""The group whose members run in worker processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from evorl.cluster.core import Feed, Future, heartbeat
from evorl.cluster.transport.connection import Payload, dumps_array, loads
from evorl.cluster.workers.calls import MAX_AHEAD, Call
from evorl.cluster.workers.handle import WorkerHandle
from evorl.cluster.workers.heartbeats import TICK_S
from evorl.cluster.workers.launcher import Launcher
from evorl.cluster.workers.pool import WorkerPool

GATHER_AHEAD = 2  # calls of each member ahead of the answers that were taken
MAX_SHARED = 32  # streams of more members do not share arguments in memory: each block is two open files


class RemoteFuture:
    """A `Future` of a group's call."""

    def __init__(self, group: RemoteGroup, call: Call) -> None:
        self._group, self._call = group, call

    def done(self) -> bool:
        self._group.poll(0)
        return self._call.outcomes is not None

    def result(self) -> Any:
        self._group.wait(self._call)
        return self._group.answers_of(self._call)[0]


class RemoteGroup:
    """Members in the processes of a launcher (see `evorl.cluster.core.Group`)."""

    def __init__(self, launcher: Launcher, size: int, deadline_s: float, plain: Sequence[type[Exception]]) -> None:
        self.size = size
        self.pool = WorkerPool(launcher, size, deadline_s, plain)
        self._sender = self.pool.sender
        self._numbers = count(1)
        self._backlog: deque[Call] = deque()  # for any free worker
        self._abandoned: list[Call] = []  # unanswered calls of streams that were left
        self._states = self.pool.states()  # after the answers that were taken

    def all(self, method: str, *args: object) -> list[Any]:
        payload = Payload(args, self._sender.block_pool, self._sender.broadcaster.stored_payloads())
        self._sender.broadcaster.broadcast(payload)
        calls = [
            Call(next(self._numbers), method, handle.members, payload, stateful=True) for handle in self.pool.handles
        ]
        for handle, call in zip(self.pool.handles, calls, strict=True):
            self._sender.dispatch(handle, [call])
        answers: list[Any] = [None] * self.size
        errors: dict[int, Exception] = {}
        for call in calls:
            self.wait(call)
        payload.release()
        for call in calls:
            self._record_states(call)
            for member, outcome in zip(call.members, call.outcomes or (), strict=True):
                if outcome[0]:
                    answers[member] = outcome[1]
                else:
                    errors[member] = self.pool.member_error(member, outcome[1])
        if errors:
            raise errors[min(errors)]
        return answers

    def any(self, method: str, *args: object) -> RemoteFuture:
        call = Call(
            next(self._numbers), method, [], Payload(args, self._sender.block_pool), stateful=False, sole_reader=True
        )
        self._backlog.append(call)
        if self._sender.scheduler.has_idle():
            self._assign_backlog()  # else all are busy, and this call may share a message with the next ones
        return RemoteFuture(self, call)

    def first(self, futures: Sequence[Future]) -> Future:
        while (ready := next((future for future in futures if future.done()), None)) is None:
            self.poll(TICK_S)
        return ready

    def map(self, method: str, arguments: Iterable[Sequence[object]]) -> Iterator[Any]:
        remaining, most = iter(arguments), 2 * MAX_AHEAD * len(self.pool.handles)
        in_flight: deque[RemoteFuture] = deque()
        while True:
            while len(in_flight) < most and (args := next(remaining, None)) is not None:
                in_flight.append(self.any(method, *args))
            if not in_flight:
                return
            yield in_flight.popleft().result()

    def gather(
        self, method: str, *args: object, begin: int = 0
    ) -> Generator[tuple[int, Any], Sequence[object] | None, None]:
        payload = Payload(args, self._sender.block_pool if self.size <= MAX_SHARED else None)
        answered: deque[Call] = deque()
        calls: dict[int, Call] = {}  # calls whose answers have not been taken

        def call_member(member: int) -> None:
            call = Call(
                next(self._numbers), method, [member], payload, stateful=True, copy=False, answer_queue=answered
            )
            calls[call.number] = call
            self._sender.dispatch(self.pool.handle_of(member), [call])

        self._finish_abandoned()  # else the calls of many streams would accumulate at a slow worker
        try:
            for _ in range(GATHER_AHEAD):
                for number in range(begin, begin + self.size):
                    call_member(number % self.size)
            while True:
                while not answered:
                    self.poll(TICK_S)
                call = answered.popleft()
                self._record_states(call)
                (answer,) = self.answers_of(call)
                new = yield call.members[0], answer
                if new is not None:
                    payload.rewrite(new)
                del calls[call.number]
                call.release_answer()
                call_member(call.members[0])
        finally:  # an abandoned stream holds no memory of the workers
            answered.clear()
            for call in calls.values():
                call.release_answer()
                if call.outcomes is None:  # it may have to be sent again
                    call.sole_reader = True
                    payload.add_user()
                    self._abandoned.append(call)
            payload.release()

    def _finish_abandoned(self) -> None:
        while self._abandoned:
            self.wait(self._abandoned.pop())

    def states(self) -> list[Any]:
        if any(state is None for state in self._states):  # raises the error of a member without a state
            self.all("state_dict")
        return [loads(state.data) for state in self._states if state is not None]

    def _record_states(self, call: Call) -> None:
        """Record the members' states after a call whose answers were taken."""
        for member, state in zip(call.members, call.states, strict=True):
            self._states[member] = state

    def restore(self, states: Sequence[Any]) -> None:
        self._finish_abandoned()  # else these calls would run on the new states
        self._states = [dumps_array(state) for state in states]
        self.pool.restore(self._states)

    def set_recovery_state(self, state: Callable[[], object]) -> None:
        self._sender.recovery_state = state

    def set_feed(self, feed: Feed) -> None:
        self._sender.feeder.feed = feed

    def counters(self) -> dict[str, float]:
        return {
            "cluster/replaced": float(self.pool.replaced),
            "cluster/refused": float(self.pool.refused),
            "cluster/sent": float(self._sender.sent + self.pool.inbox.relayed),
        }

    def close(self) -> None:
        self._abandoned.clear()
        self.pool.close()

    def _assign_backlog(self) -> None:
        """Assign calls of the backlog evenly to the workers, up to each worker's capacity."""
        assigned: dict[int, WorkerHandle] = {}
        while self._backlog and (handle := self._sender.scheduler.least_loaded()) is not None:
            self._sender.assign(handle, [self._next(handle)])
            assigned[handle.number] = handle
        for handle in assigned.values():
            self._sender.push(handle)

    def _next(self, handle: WorkerHandle) -> Call:
        """Return the oldest call of the backlog, for one of a worker's members."""
        call = self._backlog.popleft()
        call.members = [handle.members[call.number % len(handle.members)]]
        return call

    def wait(self, call: Call) -> None:
        """Wait until a call is answered."""
        while call.outcomes is None:
            self.poll(TICK_S)

    def answers_of(self, call: Call) -> list[Any]:
        """Return a call's answers by member; raise the first error."""
        assert call.outcomes is not None
        for member, (succeeded, content) in zip(call.members, call.outcomes, strict=True):
            if not succeeded:
                raise self.pool.member_error(member, content)
        return [content for _, content in call.outcomes]

    def poll(self, timeout_s: float) -> None:
        """Handle received messages, and assign calls to free workers. Raises `MemberLost`."""
        heartbeat()
        self._assign_backlog()
        self.pool.poll(timeout_s)
        self._assign_backlog()
