"""Signals that wait until what is written is whole."""

from __future__ import annotations

import signal
from threading import Thread

import pytest

from evorl.util.stop import STOPS, signals_wait


@pytest.mark.parametrize("number", STOPS)
def test_the_first_signal_comes_after_the_body(number: signal.Signals) -> None:
    told: list[str] = []
    before = {each: signal.signal(each, lambda got, _: told.append(signal.Signals(got).name)) for each in STOPS}
    try:
        with signals_wait():
            signal.raise_signal(number)
            signal.raise_signal(number)
            told.append("written")
        assert told == ["written", number.name]
        with pytest.raises(OSError, match="full"), signals_wait():
            signal.raise_signal(number)
            raise OSError("full")
        assert told == ["written", number.name, number.name]
        signal.raise_signal(number)
        assert told[3:] == [number.name]
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_another_thread_handles_no_signals() -> None:
    done: list[bool] = []

    def work() -> None:
        with signals_wait():
            done.append(True)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert done
