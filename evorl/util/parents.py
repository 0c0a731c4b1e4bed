"""Processes that end with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from functools import partial

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
