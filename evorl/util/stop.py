"""Ending a wait in this process because the run is to stop, and the process or the call because of a signal.

A pause ends at once; another wait where `evorl.cluster.core.stoppable` allows it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn

from evorl.util.heartbeat import heartbeat

STOPS = (signal.SIGINT, signal.SIGTERM)
LOOK_S = 0.5
"""Seconds between two looks whether the run is to stop."""
stop_requested: ContextVar[Callable[[], bool]] = ContextVar("stop_requested", default=lambda: False)
"""Whether the run is to stop; the session of a run sets it."""
end_wait: ContextVar[Callable[[], None]] = ContextVar("end_wait", default=lambda: None)
"""What `check_stop` calls: it raises once the run is to stop."""
owns_process: ContextVar[bool] = ContextVar("owns_process", default=True)
"""Whether this process is evorl's to end, as a command's is; False for a call from Python, whose program goes on."""


def check_stop() -> None:
    """Raise `evorl.cluster.core.Stopped` where `evorl.util.heartbeat.heartbeat` would, without sending a heartbeat.

    For waits that may never end, which the driver must take for hung; a wait with an end of its own sends heartbeats.
    """
    end_wait.get()()


def stopping() -> bool:
    """Return whether the run is to stop, so that nothing pauses any longer."""
    return stop_requested.get()()


def pause(seconds: float) -> None:
    """Wait so long, or until the run is to stop, with heartbeats. Raises as `check_stop` does."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0 and not stopping():
        heartbeat()
        time.sleep(min(left, LOOK_S))
    check_stop()


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait for the end of the body, which writes what is to be there whole or not at all.

    For work of a second at most. In another thread than the main one, which handles signals, nothing waits.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def leave(number: int) -> NoReturn:
    """Leave at once because of a signal: end the process, or raise SystemExit where it is not evorl's to end."""
    if owns_process.get():
        os._exit(128 + number)
    raise SystemExit(128 + number)
