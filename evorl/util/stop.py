"""Ending a wait in this process because the run is to stop.

A pause ends at once; another wait where `evorl.cluster.core.stoppable` allows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar

LOOK_S = 0.5
"""Seconds between two looks whether the run is to stop."""
stop_requested: ContextVar[Callable[[], bool]] = ContextVar("stop_requested", default=lambda: False)
"""Whether the run is to stop; the session of a run sets it."""
end_wait: ContextVar[Callable[[], None]] = ContextVar("end_wait", default=lambda: None)
"""What `check_stop` calls: it raises once the run is to stop."""


def check_stop() -> None:
    """Raise `evorl.cluster.core.Stopped` where `evorl.cluster.core.heartbeat` would, without sending a heartbeat.

    For waits that may never end, which the driver must take for hung.
    """
    end_wait.get()()


def stopping() -> bool:
    """Return whether the run is to stop, so that nothing pauses any longer."""
    return stop_requested.get()()


def pause(seconds: float) -> None:
    """Wait so long, or until the run is to stop. Raises as `check_stop` does."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0 and not stopping():
        time.sleep(min(left, LOOK_S))
    check_stop()
