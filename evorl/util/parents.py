"""Child processes: how they end with their parent, and how they ended."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from evorl.util.text import printable

PR_SET_PDEATHSIG = 1
LOOK_S = 0.002
"""Seconds between two looks at a child that is to end."""


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


def exit_status(child: subprocess.Popen[bytes], wait_s: float = 0.0) -> int | None:
    """Return the return code of a child process; None if it still runs after ``wait_s``.

    It does not reap the child, as `subprocess` itself would, so the kernel gives its number to nobody before
    `kill_group`.
    """
    ends = time.monotonic() + wait_s
    while child.returncode is None:
        try:
            found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # SIGCHLD is ignored, so the kernel reaps
            return child.wait()
        if found is not None:
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        if time.monotonic() >= ends:
            return None
        time.sleep(LOOK_S)
    return child.returncode


def kill_group(leader: subprocess.Popen[bytes]) -> None:
    """Kill a child that leads a process group, with what it has started itself, and reap it.

    Does nothing to one that was reaped: another group may have its number by now.
    """
    if leader.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()


def signal_name(number: int) -> str:
    """``SIGKILL``; ``signal 40`` for one without a name, as most real-time signals are."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def ending(status: int, output: bytes) -> str:
    """How a child process ended, by its return code, with the last line of its output. One printable line."""
    how = f"ended with exit code {status}" if status >= 0 else f"was killed by {signal_name(-status)}"
    words = output.decode(errors="replace").strip().splitlines()
    return how + (f"; it said last: {printable(words[-1])[:300]}" if words else "")
