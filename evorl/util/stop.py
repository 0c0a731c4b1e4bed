"""Giving up a wait in this process because the run is to stop, where `evorl.cluster.core.stoppable` allows it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

end_wait: ContextVar[Callable[[], None]] = ContextVar("end_wait", default=lambda: None)
"""What `check_stop` calls: it raises once the run is to stop."""


def check_stop() -> None:
    """Raise `evorl.cluster.core.Stopped` where `evorl.cluster.core.heartbeat` would, and tell nobody else anything.

    For waits that may never end, which the driver must take for hung.
    """
    end_wait.get()()
