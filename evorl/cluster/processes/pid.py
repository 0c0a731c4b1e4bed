"""Processes that are remembered for a while.

Once a process has ended and its parent has waited for it, its number may be given to another one. So whoever is not the
parent remembers beside the number when the process began, and signals it through a handle of its own (a pidfd).
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
    """One process, whoever has its number later."""

    number: int
    began: int  # the kernel's ticks from its boot to then

    @classmethod
    def of(cls, number: int) -> Pid:
        """For numbers that cannot be another's yet: this process's own, and those of children not waited for."""
        return cls(number, _began(number))

    def pack(self) -> bytes:
        return WORDS.pack(*self)

    @classmethod
    def unpack(cls, words: bytes) -> Pid:
        return cls(*WORDS.unpack(words))

    def open(self) -> int:
        """A pidfd, which becomes readable when it has ended. Raises ProcessLookupError where it has been waited for."""
        fd = os.pidfd_open(self.number)
        with suppress(ProcessLookupError):
            if _began(self.number) == self.began:  # so the number was not another's a moment ago either
                return fd
        os.close(fd)
        raise ProcessLookupError(f"process {self.number} has ended")

    def kill(self) -> None:
        """Where it has not been waited for."""
        with suppress(ProcessLookupError):
            fd = self.open()
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            finally:
                os.close(fd)

    def replaced(self) -> bool:
        """Whether another process has its number."""
        with suppress(ProcessLookupError):
            return _began(self.number) != self.began
        return False


def _began(number: int) -> int:
    """Raises ProcessLookupError where nobody has the number."""
    try:
        stat = Path(f"/proc/{number}/stat").read_bytes()
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {number}") from None
    return int(stat.rpartition(b") ")[2].split()[19])
