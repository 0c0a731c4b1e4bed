"""Child processes: how they end with their parent, and how they ended."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from functools import partial

from evorl.util.text import printable

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel to end this process by a signal when its parent ends for any reason.

    The kernel sends it when the *thread* that forked this process ends, so that thread must live as long as the parent.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it died before the request
        os._exit(1)


def with_parent(number: int = signal.SIGKILL) -> Callable[[], None]:
    """For ``preexec_fn`` of `subprocess`: `die_with_parent` of this process."""
    return partial(die_with_parent, os.getpid(), number)


def signal_name(number: int) -> str:
    """``SIGKILL``; ``signal 40`` for one without a name, as most real-time signals are."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def ending(status: int, output: bytes) -> str:
    """How a child process ended, by its return code, with the last line of its output. One printable line."""
    how = f"ended with exit code {status}" if status >= 0 else f"was killed by {signal_name(-status)}"
    words = output.decode(errors="replace").strip().splitlines()
    return how + (f"; it said last: {printable(words[-1])[:300]}" if words else "")
