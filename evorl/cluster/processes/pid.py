"""Process ids that stay correct after the process has ended.

Once a process has ended and its parent has waited for it, the kernel may reuse its number. So a process that is not the
parent also stores the start time, and sends signals through a pidfd.
"""

from __future__ import annotations

import os
import signal
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

WORDS = struct.Struct("<qq")


class Pid(NamedTuple):
    """One process: its number and its start time."""

    number: int
    began: int  # start time, in clock ticks since boot

    @classmethod
    def of(cls, number: int) -> Pid:
        """The `Pid` of a number that cannot be reused yet: this process, or a child that was not waited for."""
        return cls(number, _began(number))

    def pack(self) -> bytes:
        return WORDS.pack(*self)

    @classmethod
    def unpack(cls, words: bytes) -> Pid:
        return cls(*WORDS.unpack(words))

    def open(self) -> int:
        """A pidfd, readable when the process has ended. Raises ProcessLookupError if it was waited for."""
        fd = os.pidfd_open(self.number)
        with suppress(ProcessLookupError):
            if _began(self.number) == self.began:  # so the number was not reused before the pidfd was opened
                return fd
        os.close(fd)
        raise ProcessLookupError(f"process {self.number} has ended")

    def kill(self) -> None:
        """Send SIGKILL, unless it was waited for."""
        with suppress(ProcessLookupError):
            fd = self.open()
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            finally:
                os.close(fd)

    def replaced(self) -> bool:
        """Whether another process has its number now."""
        with suppress(ProcessLookupError):
            return _began(self.number) != self.began
        return False


def is_stopped(number: int) -> bool:
    """Whether a child that was not waited for is stopped, by a signal or a debugger."""
    return Path(f"/proc/{number}/stat").read_bytes().rpartition(b") ")[2][:1] in b"Tt"


def _began(number: int) -> int:
    """The start time of a process. Raises ProcessLookupError if there is none with this number."""
    try:
        stat = Path(f"/proc/{number}/stat").read_bytes()
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {number}") from None
    return int(stat.rpartition(b") ")[2].split()[19])
