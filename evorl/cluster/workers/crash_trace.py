"""What a worker was doing when it died."""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import struct
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import thread

MEMBER = struct.Struct("<i")
MAX_TRACE = 1 << 15  # bytes
DUMP = signal.SIGUSR1
WORKER_FRAMES = tuple(f'  File "{place}' for place in (os.path.dirname(__file__), threading.__file__, thread.__file__))
"""How the lines of a stack begin that tell nothing of the member: a worker's life in a forked thread."""


class CrashTrace:
    """Memory that a worker shares with whoever forked it: the member that it is busy with, and the stack of its end."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("evorl-box", os.MFD_CLOEXEC)
        os.write(self.fd, MEMBER.pack(-1))
        self._head = mmap.mmap(self.fd, MEMBER.size)

    def mark(self, member: int) -> None:
        """The worker is busy with this member; -1: with none."""
        MEMBER.pack_into(self._head, 0, member)

    def record(self, work: Callable[[], None]) -> None:
        """Do ``work``; what ends it is written down: an exception, a fatal signal or, if it hangs, where (`DUMP`)."""
        faulthandler.enable(self.fd)
        faulthandler.register(DUMP, self.fd)
        try:
            work()
        except BaseException:
            os.write(self.fd, traceback.format_exc().encode())
            raise

    @property
    def member(self) -> int | None:
        """The member that the worker was busy with."""
        (member,) = MEMBER.unpack_from(self._head)
        return member if member >= 0 else None

    @property
    def trace(self) -> str:
        """Where it was, innermost call first; of an exception, its traceback."""
        text = os.pread(self.fd, MAX_TRACE, MEMBER.size).decode(errors="replace")
        if text.startswith("Traceback"):
            return text.strip()
        lines = text.partition("\nExtension modules:")[0].splitlines()
        return "\n".join(line for line in lines if not line.startswith(WORKER_FRAMES)).strip()

    def close(self) -> None:
        self._head.close()
        os.close(self.fd)
