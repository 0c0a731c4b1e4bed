"""The driver's record of one worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from evorl.cluster.transport.connection import Bytes
from evorl.cluster.workers.calls import CallQueue
from evorl.cluster.workers.failure_policy import FailureHistory
from evorl.cluster.workers.lifecycle import Event, State, next_state
from evorl.cluster.workers.process import Process


@dataclass(slots=True)
class WorkerHandle:
    """One worker: its members, its calls, and its current process with the state that this is in.

    The broadcaster and the feeder keep their own records of a worker.
    """

    number: int
    members: list[int]
    process: Process
    state: State = State.STARTING  # changed by `accept` alone
    member_states: dict[int, Bytes | None] = field(default_factory=dict)  # the last known ones, serialized
    calls: CallQueue = field(default_factory=CallQueue)
    failures: FailureHistory = field(default_factory=FailureHistory)

    def accept(self, event: Event) -> None:
        """Enter the state after an event. Raises `ProtocolError` if its state does not accept the event."""
        self.state = next_state(self.state, event)

    @property
    def ready(self) -> bool:
        """Return whether its members are made."""
        return self.state is State.READY

    @property
    def connected(self) -> bool:
        """Return whether its process is connected, and its receiver too if it has one."""
        return self.state not in (State.STARTING, State.HELLO_ONLY)

    @property
    def host(self) -> str:
        """Return the identifier of its process's host; empty before its hello."""
        return self.process.host

    @property
    def assigned(self) -> int:
        return len(self.calls)

    @property
    def capacity(self) -> int:
        """Return the number of calls that it may have assigned."""
        return self.calls.capacity if self.ready else 0

    @property
    def activity(self) -> str:
        """Return what its process was doing, for messages about its end."""
        if not self.ready:
            return "it began"
        return f"{self.calls.first.method} ran" if self.calls.first else "it waited"

    def replace_process(self) -> None:
        """Begin a new process, which gets all unanswered calls; forget all else of the former process."""
        self.accept(Event.EXIT)
        former = self.process
        self.process = Process.started(former.connection.token, self.number, former.life + 1)
        self.calls.send_again()
        self.calls.missing = 0

    def clear(self) -> None:
        """Drop all calls, and the memory of its process."""
        self.process.reader = None
        self.calls.clear()
