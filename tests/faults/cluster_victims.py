"""Members that die by their own doing, and what tests of faults in clusters share."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import relatives as relatives


def hold_the_interpreter() -> None:
    ctypes.PyDLL(None).sleep(1000)  # called without letting go of the lock


def spin() -> None:
    while True:
        pass


def exhaust() -> None:
    """Ask for more memory than the process may have."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 33, resource.RLIM_INFINITY))
    bytearray(1 << 40)


WAYS: dict[str, Callable[[], object]] = {
    "exits": lambda: os._exit(3),
    "leaves": lambda: exec("raise SystemExit(4)"),
    "segfaults": lambda: ctypes.string_at(0),
    "aborts": os.abort,
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exhausts its memory": exhaust,
    "loops": spin,
    "holds the interpreter": hold_the_interpreter,
    "is stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


class Victim:
    """Adds up; member 1 dies in the given way in the method ``where``, as often as ``place`` holds files."""

    def __init__(self, place: Path, way: str, where: str, index: int) -> None:
        self.place, self.way, self.where, self.index = place, way, where, index
        self.sum = 0
        self._pass("make")

    def _pass(self, where: str) -> None:
        """Dies here, while there is a file left."""
        if where == self.where and self.index == 1:
            for path in self.place.iterdir():
                path.unlink()
                WAYS[self.way]()

    def add(self, x: int) -> int:
        self.sum += x * (self.index + 1)
        self._pass("add")
        return self.sum

    def ask(self, x: int) -> int:
        self._pass("ask")
        time.sleep(0.001)
        return x * x

    def fail(self) -> None:
        self._pass("fail")
        raise RuntimeError("the roof fell in")

    def nap(self, seconds: float) -> int:
        time.sleep(seconds)
        return self.index

    def pid(self) -> int:
        return os.getpid()

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self.sum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._pass("load")
        self.sum = state["sum"]


def lives(place: Path, number: int) -> Path:
    """A directory that makes a `Victim` die so often."""
    place.mkdir()
    for n in range(number):
        (place / str(n)).touch()
    return place


# ------------------------------------------------------------------ processes of a run


def send(number: signal.Signals, pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
