"""Children by fork: how they begin, how they end with their parent, and how they ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

PR_SET_PDEATHSIG = 1


def fork(work: Callable[[], None], keep: int) -> int:
    """A child that does ``work`` and ends; of the parent's files it keeps the standard three and ``keep``."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():  # newer Pythons warn of the parent's threads: see `ProcessLauncher._fork`
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _close_files(keep)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _exit(code)


def _exit(code: int) -> NoReturn:
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # nothing of the parent's is to be ended twice


def _close_files(keep: int) -> None:
    """Locks, sockets and pipes of the parent must not live on in a child."""
    most = os.sysconf("SC_OPEN_MAX")
    if keep < 0:
        os.closerange(3, most)
    else:
        os.closerange(3, keep)
        os.closerange(keep + 1, most)


def die_with_parent(parent: int) -> None:
    """Be killed when the parent ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request
        os._exit(1)


def exit_reason(status: int) -> str:
    """How a process ended, from its exit status."""
    if status >= 0:
        return f"left with exit code {status}"
    number = -status
    return f"was killed by {signal.Signals(number).name if number in set(signal.Signals) else f'signal {number}'}"
