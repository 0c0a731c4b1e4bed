"""The sign of this process that it still works, for calls that may take long (`evorl.cluster.core`)."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

send_heartbeat: ContextVar[Callable[[], None]] = ContextVar("send_heartbeat", default=lambda: None)
"""What `heartbeat` calls in this process; a worker sets it."""


def heartbeat() -> None:
    """Send the driver a sign that this call is still running, unless one was sent a moment ago. That takes 0.3 us.

    A member does so within calls that may take longer than the deadline after which a silent worker counts as hung:
    in each round of a loop that plays or learns, and in a wait that has an end of its own. In the driver's process it
    raises `evorl.cluster.core.Stopped` within `evorl.cluster.core.stoppable` once `stop_requested` says so, and else
    does nothing.
    """
    send_heartbeat.get()()
