"""Record of what a worker was doing when it died, in memory shared with its parent."""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import struct
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import thread

MEMBER = struct.Struct("<i")
MAX_TRACE = 1 << 15  # bytes
DUMP = signal.SIGUSR1
DUMP_S = 0.1  # seconds for a hung worker to write its stack
WORKER_FRAMES = tuple(f'  File "{place}' for place in (os.path.dirname(__file__), threading.__file__, thread.__file__))
"""Beginnings of stack lines of the worker's own code and of threading, which are left out of traces."""


class CrashTrace:
    """Memory that a worker shares with its parent process: the member that it runs, and its stack when it ends."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("evorl-box", os.MFD_CLOEXEC)
        os.write(self.fd, MEMBER.pack(-1))
        self._head = mmap.mmap(self.fd, MEMBER.size)

    def mark(self, member: int) -> None:
        """Record the member that the worker runs now; -1: none."""
        MEMBER.pack_into(self._head, 0, member)

    def record(self, work: Callable[[], None]) -> None:
        """Call ``work`` and record what ends it: an exception, a fatal signal or, on the signal `DUMP`, a hang."""
        faulthandler.enable(self.fd)
        faulthandler.register(DUMP, self.fd)
        try:
            work()
        except BaseException:
            os.write(self.fd, traceback.format_exc().encode())
            raise

    @property
    def member(self) -> int | None:
        """Return the member that the worker was running, if any."""
        (member,) = MEMBER.unpack_from(self._head)
        return member if member >= 0 else None

    @property
    def trace(self) -> str:
        """Return its stack, innermost call first; for an exception, its traceback."""
        text = os.pread(self.fd, MAX_TRACE, MEMBER.size).decode(errors="replace")
        if text.startswith("Traceback"):
            return text.strip()
        lines = text.partition("\nExtension modules:")[0].splitlines()
        return "\n".join(line for line in lines if not line.startswith(WORKER_FRAMES)).strip()

    def request_stack(self, pidfd: int) -> None:
        """Let a process that hangs record its stack, if it can."""
        signal.pidfd_send_signal(pidfd, DUMP)
        ends = time.monotonic() + DUMP_S
        while not self.trace and time.monotonic() < ends:
            time.sleep(0.005)

    def close(self) -> None:
        self._head.close()
        os.close(self.fd)
