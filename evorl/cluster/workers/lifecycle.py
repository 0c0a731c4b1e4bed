"""The states of a worker: which state accepts which event, which follows, and whose calls can be sent then.

`TRANSITIONS` is all that is known about this; `docs/workers.md` shows it as a picture and as a table.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from evorl.cluster.transport.wire import ProtocolError


class State(Enum):
    """What a worker's process has done. Workers of other hosts than the driver's have a receiver."""

    STARTING = "its process starts"
    HELLO_ONLY = "it has said hello, its receiver has not connected"
    RECEIVER_ONLY = "its receiver has connected, it has not said hello"
    MAKING = "it makes its members"
    READY = "it runs calls"


class Event(Enum):
    """What happens to a worker: first what the driver notices or wants, then messages of its process and receiver."""

    EXIT = "its process has ended, by itself or killed at its deadline"
    RESTORE = "the group's members are to be made again"
    HELLO_NEAR = "hello from the driver's host"
    HELLO_FAR = "hello from another host"
    MADE = "its members are made"
    ANSWERS = "answers to calls in flight"
    HEARTBEAT = "heartbeat"
    MISSING = "the arrays of a call are gone from its host"
    RECEIVING = "its receiver connects"
    STORED = "its host stores a broadcast"
    FOLLOWED = "its host's copy of the feed has grown"
    LOCATED = "it has mapped the copy of the feed, or cannot"
    RELAY_COUNTS = "counts of its relay"


class Unblocks(Enum):
    """The workers that may be waiting for an event: their unsent calls are pushed."""

    NONE = ""
    WORKER = "the worker"
    HOST = "all workers of its host"
    BEHIND = "all workers of the hosts that waited for a broadcast from it"


class Transition(NamedTuple):
    """The states that accept an event, with the state that follows each."""

    states: dict[State, State]
    unblocks: Unblocks = Unblocks.NONE


def _in(*states: State) -> dict[State, State]:
    """Return transitions that do not change the state."""
    return {state: state for state in states}


TRANSITIONS = {
    Event.EXIT: Transition(dict.fromkeys(State, State.STARTING), Unblocks.BEHIND),
    Event.RESTORE: Transition({State.READY: State.MAKING}),
    Event.HELLO_NEAR: Transition({State.STARTING: State.MAKING, State.RECEIVER_ONLY: State.MAKING}),
    Event.HELLO_FAR: Transition({State.STARTING: State.HELLO_ONLY, State.RECEIVER_ONLY: State.MAKING}),
    Event.RECEIVING: Transition({State.STARTING: State.RECEIVER_ONLY, State.HELLO_ONLY: State.MAKING}),
    Event.MADE: Transition({State.MAKING: State.READY}, Unblocks.WORKER),
    Event.ANSWERS: Transition(_in(State.MAKING, State.READY)),  # MAKING: to calls that were sent before a restore
    Event.HEARTBEAT: Transition(_in(*State)),
    Event.MISSING: Transition(_in(State.READY), Unblocks.WORKER),
    Event.STORED: Transition(_in(State.MAKING, State.READY), Unblocks.HOST),
    Event.FOLLOWED: Transition(_in(State.MAKING, State.READY), Unblocks.HOST),
    Event.LOCATED: Transition(_in(State.MAKING, State.READY), Unblocks.WORKER),
    Event.RELAY_COUNTS: Transition(_in(State.RECEIVER_ONLY, State.MAKING, State.READY)),
}


def next_state(state: State, event: Event) -> State:
    """Return the state after an event. Raises `ProtocolError` if the state does not accept it."""
    following = TRANSITIONS[event].states.get(state)
    if following is None:
        raise ProtocolError(f"{event.value}, while {state.value}")
    return following
