"""What the driver receives: messages of workers and of their receivers are checked here, and have their effects."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from evorl.cluster.core import Position
from evorl.cluster.transport.connection import Bytes, bulk
from evorl.cluster.transport.wire import Bulk, Failure, Header, Kind, ProtocolError, check_outcomes, unpack
from evorl.cluster.workers.calls import Call, Outcomes, States
from evorl.cluster.workers.driver_socket import MAX_MESSAGES_PER_CALL, DriverSocket
from evorl.cluster.workers.failure_policy import NO_CALL
from evorl.cluster.workers.handle import WorkerHandle
from evorl.cluster.workers.lifecycle import Event, next_state
from evorl.cluster.workers.process import Hello
from evorl.cluster.workers.sender import Sender

log = logging.getLogger("evorl")

WORKER_FORMS: dict[Kind, Any] = {
    Kind.HELLO: Hello,
    Kind.ANSWER: list[int],  # numbers of calls
    Kind.HEARTBEAT: None,
    Kind.MISSING: int,  # number of a call
}
"""The envelopes of a worker's messages."""
RECEIVER_FORMS: dict[Kind, Any] = {
    Kind.RECEIVING: None,
    Kind.STORED: tuple[int, int, int],  # number of a broadcast; file descriptor and block that hold it
    Kind.FOLLOWED: tuple[int, Position | None, int],  # number of a send; position and file descriptor of the copy
    Kind.LOCATED: tuple[int, int, bool],  # process and file descriptor of the copy; whether it is mapped
    Kind.RELAY_COUNTS: tuple[int, int],  # refused messages, forwarded bytes
}
"""The envelopes of messages of its receiver."""
MADE = [0]  # numbers of calls in the answer which says that the members are made


class Message(NamedTuple):
    """A message that is the next one of its connection."""

    header: Header
    envelope: Any  # see `WORKER_FORMS` and `RECEIVER_FORMS`
    frames: list[bytes]


class Inbox:
    """Receives messages. One that is not valid in its worker's state is counted and changes nothing else."""

    def __init__(
        self,
        socket: DriverSocket,
        sender: Sender,
        handles: Sequence[WorkerHandle],
        member_error: Callable[[int, Failure], Exception],
    ) -> None:
        """``member_error`` makes the error to raise if a member cannot be made."""
        self._socket, self._sender, self._member_error = socket, sender, member_error
        self.refused = 0  # messages
        self.relayed = 0  # bytes of arrays that workers sent to other hosts
        self._by_name: dict[bytes, WorkerHandle] = {}
        for handle in handles:
            self.add(handle)
        self._effects: dict[Event, Callable[[WorkerHandle, Message], None]] = {
            Event.HELLO_NEAR: self._greet,
            Event.HELLO_FAR: self._greet,
            Event.MADE: self._continue,
            Event.ANSWERS: self._complete_calls,
            Event.HEARTBEAT: lambda handle, _: handle.process.signs.renew(),
            Event.MISSING: lambda handle, message: handle.calls.send_again_from(message.envelope),
            Event.RECEIVING: lambda *_: None,
            Event.STORED: self._confirm_broadcast,
            Event.FOLLOWED: self._confirm_piece,
            Event.LOCATED: self._confirm_located,
            Event.RELAY_COUNTS: self._add_relay_counts,
        }

    def add(self, handle: WorkerHandle) -> None:
        """Accept messages of a worker's process and of its receiver."""
        process = handle.process
        self._by_name[process.name] = self._by_name[process.receiver_name] = handle

    def remove(self, handle: WorkerHandle) -> None:
        """Refuse messages of a process that has ended."""
        del self._by_name[handle.process.name], self._by_name[handle.process.receiver_name]

    def drain(self) -> None:
        """Handle the messages that have arrived."""
        for _ in range(MAX_MESSAGES_PER_CALL):
            if not self._receive():
                return

    def _receive(self) -> bool:
        """Handle the next message; return False if there is none."""
        received = self._socket.receive()
        if received is None:
            return False
        identity, *frames = received
        try:
            self._handle(identity, frames)
        except ProtocolError as error:
            self.refused += 1
            log.debug("refused a message: %.200s", error)
        return True

    def _handle(self, identity: bytes, frames: list[bytes]) -> None:
        """Check a message, and let it take effect. Raises `ProtocolError`, and changes nothing, if it is invalid."""
        handle = self._by_name.get(identity)
        if handle is None:
            raise ProtocolError(f"unknown worker {identity!r}")
        of_worker = identity == handle.process.name
        connection = handle.process.connection if of_worker else handle.process.receiver
        if connection is None:
            raise ProtocolError("a receiver on the driver's host")
        header = connection.check(frames)
        forms = WORKER_FORMS if of_worker else RECEIVER_FORMS
        if header.kind not in forms:
            raise ProtocolError(f"a {'worker' if of_worker else 'receiver'} does not send {header.kind.name}")
        message = Message(header, unpack(frames[1], form=forms[header.kind]), frames)
        event = self._event(message)
        next_state(handle.state, event)  # raises if it is not accepted
        self._effects[event](handle, message)
        connection.accept(header)
        self._sender.enter(handle, event)

    def _event(self, message: Message) -> Event:
        kind, envelope = message.header.kind, message.envelope
        if kind == Kind.HELLO:
            return Event.HELLO_NEAR if envelope.host == self._sender.host else Event.HELLO_FAR
        if kind == Kind.ANSWER:
            return Event.MADE if envelope == MADE else Event.ANSWERS
        return Event[kind.name]

    # -------------------------------------------------------------- effects of a worker's messages

    def _greet(self, handle: WorkerHandle, message: Message) -> None:
        handle.process.greet(message.envelope, near=message.envelope.host == self._sender.host)

    def _continue(self, handle: WorkerHandle, message: Message) -> None:
        """Continue where the worker's former process stopped; its members are made now."""
        [(outcomes, states)], block = _answers(handle, message, [len(handle.members)], copy=True)
        for member, state, (succeeded, content) in zip(handle.members, states, outcomes, strict=True):
            if not succeeded:
                raise self._member_error(member, content)
            handle.member_states[member] = state
        if block is not None:
            handle.process.released.append(block)
        handle.process.signs.renew()
        handle.calls.send_again()
        if not handle.calls:
            handle.failures.begin(NO_CALL)

    def _complete_calls(self, handle: WorkerHandle, message: Message) -> None:
        calls = handle.calls.next_answered(message.envelope)
        answers, block = _answers(handle, message, [len(call.members) for call in calls], calls[0].copy)
        if block is not None and not calls[0].copy:
            calls[0].answer_block = handle.process, block
        elif block is not None:
            handle.process.released.append(block)
        handle.process.signs.renew()
        handle.calls.remove_answered(len(calls))
        for call, (outcomes, states) in zip(calls, answers, strict=True):
            self._complete(handle, call, states, outcomes)
        self._sender.scheduler.update(handle)

    def _complete(self, handle: WorkerHandle, call: Call, states: States, outcomes: Outcomes) -> None:
        handle.failures.answered += 1
        call.outcomes, call.states = outcomes, states
        if call.answer_queue is not None:
            call.answer_queue.append(call)
        call.release_arguments(self._sender.block_pool)
        for member, state in zip(call.members, states, strict=True):
            if state is not None:
                handle.member_states[member] = state

    # -------------------------------------------------------------- effects of its receiver's messages

    def _confirm_broadcast(self, handle: WorkerHandle, message: Message) -> None:
        number, fd, block = message.envelope
        if not 0 <= fd < 1 << 31 or block < 0:
            raise ProtocolError(f"a broadcast at {fd}, {block}")
        self._sender.broadcaster.confirm(handle, number, fd, block)

    def _confirm_piece(self, handle: WorkerHandle, message: Message) -> None:
        send_number, position, fd = message.envelope
        if not -1 <= fd < 1 << 31:
            raise ProtocolError(f"a copy of the feed at {fd}")
        self._sender.feeder.confirm(handle, send_number, position, fd)

    def _confirm_located(self, handle: WorkerHandle, message: Message) -> None:
        pid, fd, mapped = message.envelope
        self._sender.feeder.confirm_located(handle, (pid, fd), mapped)

    def _add_relay_counts(self, handle: WorkerHandle, message: Message) -> None:
        refused, relayed = message.envelope
        if min(message.envelope) < 0:
            raise ProtocolError(f"{refused} refused, {relayed} bytes forwarded")
        self.refused += refused
        self.relayed += relayed


def _answers(
    handle: WorkerHandle, message: Message, members: Sequence[int], copy: bool
) -> tuple[list[tuple[Outcomes, list[Bytes | None]]], int | None]:
    """Return the outcomes in an answer to calls with so many members each, and the members' states after each.

    Returns also the worker's block that holds the arrays. Outcomes are views of it without ``copy``, states never are:
    they are kept. Raises `ProtocolError` if there are more or fewer outcomes or states.
    """
    header, _, frames = message
    memory, block = bulk(header, frames, handle.process.reader)
    copy = copy or header.bulk != Bulk.SHARED  # arrays in a frame are read-only
    answers = unpack(frames[2], memory, copy, list[tuple[list[tuple[bool, Any]], list[Any]]])
    if len(answers) != len(members) or (header.size and len(members) > 1):
        raise ProtocolError(f"{len(answers)} answers to {len(members)} calls, with {header.size} bytes of arrays")
    for count, (outcomes, states) in zip(members, answers, strict=True):
        check_outcomes(outcomes, count)
        if len(states) != count or not all(state is None or _is_bytes(state) for state in states):
            raise ProtocolError(f"{len(states)} states of {count} members, or others than arrays of bytes")
    if copy:
        return answers, block
    return [(outcomes, [None if x is None else x.copy() for x in states]) for outcomes, states in answers], block


def _is_bytes(state: object) -> bool:
    return isinstance(state, np.ndarray) and state.dtype == np.uint8 and state.ndim == 1
