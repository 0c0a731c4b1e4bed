"""Waiting for games: awake where they answer at once, asleep where they do not."""

import selectors
import socket
from contextlib import closing

import pytest

from evorl.mdp.remote import spinning
from evorl.mdp.remote.spinning import SPIN_S, SpinningSelector


class Clock:
    """Time that passes by yields, each a third of the time of spinning."""

    def __init__(self, other: socket.socket, arrives: int | None) -> None:
        self.now, self.yields, self.other, self.arrives = 0.0, 0, other, arrives

    def __call__(self) -> float:
        return self.now

    def give_way(self) -> None:
        self.yields, self.now = self.yields + 1, self.now + SPIN_S / 3
        if self.yields == self.arrives:
            self.other.send(b"1")


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    with closing(SpinningSelector()) as selector, one, other:
        selector.register(one, selectors.EVENT_READ, "one")
        yield selector, one, other


def waited(monkeypatch, ends, arrives, timeout=None, sleeps=1.0):
    """What a wait returns for a message after so many yields, or in a sleep of so many seconds, and the yields."""
    selector, one, other = ends
    clock = Clock(other, arrives)
    look = selectors.DefaultSelector.select

    def select(self, timeout=None):
        if timeout != 0:
            clock.now += sleeps
            if arrives is not None and clock.yields < arrives:
                other.send(b"1")
        return look(self, 0)

    with monkeypatch.context() as patch:
        patch.setattr(spinning.time, "perf_counter", clock)
        patch.setattr(spinning.os, "sched_yield", clock.give_way)
        patch.setattr(selectors.DefaultSelector, "select", select)
        events = selector.select(timeout)
    if events:
        one.recv(1)
    return [key.data for key, _ in events], clock.yields


def test_what_comes_at_once_is_awaited_awake(monkeypatch, ends):
    for _ in range(3):
        assert waited(monkeypatch, ends, 2) == (["one"], 2)


def test_after_a_long_wait_the_next_ones_sleep_at_once(monkeypatch, ends):
    assert waited(monkeypatch, ends, 9) == (["one"], 3), "spins, then sleeps"
    assert waited(monkeypatch, ends, 9) == (["one"], 0)


def test_a_short_sleep_brings_back_spinning(monkeypatch, ends):
    assert waited(monkeypatch, ends, 9) == (["one"], 3)
    assert waited(monkeypatch, ends, 9, sleeps=SPIN_S / 3) == (["one"], 0)
    assert waited(monkeypatch, ends, 2) == (["one"], 2)


@pytest.mark.parametrize("timeout", [0, -1, SPIN_S / 3])
def test_spinning_takes_no_longer_than_the_wait(monkeypatch, ends, timeout):
    events, yields = waited(monkeypatch, ends, None, timeout)
    assert not events
    assert yields <= 1


def test_no_wait_does_not_yield(monkeypatch, ends):
    assert waited(monkeypatch, ends, None, 0) == ([], 0)
