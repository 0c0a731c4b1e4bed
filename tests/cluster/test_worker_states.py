"""The table of a worker's states, the page that shows it, and the queue of a worker's calls."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evorl.cluster.transport.connection import Payload
from evorl.cluster.transport.wire import ProtocolError
from evorl.cluster.workers.calls import Call, CallQueue
from evorl.cluster.workers.inbox import RECEIVER_FORMS, WORKER_FORMS, Inbox
from evorl.cluster.workers.lifecycle import TRANSITIONS, Event, State, next_state

ROOT = Path(__file__).parents[2]
OF_DRIVER = {Event.EXIT, Event.RESTORE}


def after(events: Sequence[Event]) -> State:
    state = State.STARTING
    for event in events:
        state = next_state(state, event)
    return state


def test_the_page_shows_the_table() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "worker_states.py"))
    page = (ROOT / "docs" / "workers.md").read_text()
    assert script["BEGIN"] + script["block"]() + script["END"] in page, "make picture writes it"
    for event, transition in TRANSITIONS.items():
        for state, target in transition.states.items():
            assert (f"    {state.name} --> {target.name}: {event.name}\n" in page) == (state is not target)


def test_every_event_is_in_the_table_and_every_message_has_an_effect() -> None:
    assert {*TRANSITIONS} == {*Event}
    forms: Any = SimpleNamespace(host="here")
    messages = {*Inbox(forms, forms, [], lambda *_: ValueError())._effects}
    assert messages == {*Event} - OF_DRIVER
    fixed = {kind.name for kind in (*WORKER_FORMS, *RECEIVER_FORMS)} - {"HELLO", "ANSWER"}
    assert {Event[name] for name in fixed} == messages - {
        Event.HELLO_NEAR, Event.HELLO_FAR, Event.MADE, Event.ANSWERS,
    }  # fmt: skip


def test_members_are_made_after_the_hello_and_after_the_receiver_of_another_host() -> None:
    assert after([Event.HELLO_NEAR]) is State.MAKING
    for order in permutations([Event.HELLO_FAR, Event.RECEIVING]):
        assert after(order[:1]) is not State.MAKING
        assert after(order) is State.MAKING
        for again in order:
            with pytest.raises(ProtocolError):
                after([*order, again])


def test_every_state_but_the_first_needs_a_sign_of_the_process() -> None:
    assert {next_state(state, Event.EXIT) for state in State} == {State.STARTING}
    for event in {*Event} - {Event.EXIT, Event.HEARTBEAT, Event.HELLO_NEAR, Event.HELLO_FAR, Event.RECEIVING}:
        with pytest.raises(ProtocolError):
            next_state(State.STARTING, event)
    assert after([Event.HELLO_NEAR, Event.MADE]) is State.READY
    assert after([Event.RECEIVING, Event.RELAY_COUNTS, Event.HELLO_FAR]) is State.MAKING  # two connections
    assert after([Event.HELLO_NEAR, Event.MADE, Event.RESTORE, Event.ANSWERS, Event.MADE]) is State.READY


# ------------------------------------------------------------------ calls


def queue(*numbers: int, sent: int) -> CallQueue:
    calls = CallQueue()
    calls.unsent.extend(Call(number, "echo", [0], Payload([number]), stateful=False) for number in numbers)
    for _ in range(sent):
        calls.send_next()
    return calls


def numbers(calls: CallQueue) -> tuple[list[int], list[int]]:
    return [call.number for call in calls.in_flight], [call.number for call in calls.unsent]


def test_calls_are_answered_in_the_order_of_sending() -> None:
    calls = queue(4, 5, 6, 7, sent=3)
    for wrong in ([], [5], [4, 6], [4, 5, 6, 7], [0]):
        with pytest.raises(ProtocolError):
            calls.next_answered(wrong)
    assert [call.number for call in calls.next_answered([4, 5])] == [4, 5]
    calls.remove_answered(2)
    assert numbers(calls) == ([6], [7])
    assert calls.first is not None and calls.first.number == 6 and len(calls) == 2


def test_a_new_process_gets_all_calls_in_their_order() -> None:
    calls = queue(4, 5, 6, 7, sent=2)
    calls.send_again()
    assert numbers(calls) == ([], [4, 5, 6, 7])


def test_calls_after_missing_arrays_are_sent_again_whatever_their_numbers() -> None:
    """A call of a backlog has an older number than one that overtook it: the worker drops both."""
    calls = queue(4, 9, 5, 10, sent=3)
    calls.send_again_from(9)
    assert numbers(calls) == ([4], [9, 5, 10]) and calls.missing == 9
    for wrong in (9, 10, 5, 3):  # sent with its arrays, or not in flight
        with pytest.raises(ProtocolError):
            calls.send_again_from(wrong)
