"""Small members for tests of groups, with effects that can be observed from outside."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from evorl.cluster.core import heartbeat


class Refused(ValueError):
    """An error that a group can raise unchanged in the caller."""


class VeryRefused(Refused):
    pass


def digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


class Counter:
    """A member whose state is a running sum of its arguments."""

    def __init__(self, index: int) -> None:
        self.index, self.sum = index, 0

    def add(self, x: int) -> list[int]:
        self.sum = self.sum * 31 % 1_000_003 + x * (self.index + 1)
        return [self.index, self.sum]

    def echo(self, *values: Any) -> Any:
        return values[0] if len(values) == 1 else list(values)

    def add_all(self, array: Any) -> int:
        return self.add(int(array.sum()))[1]

    def digest(self, array: Any, *_: Any) -> str:
        return digest(array)

    def blocks(self) -> int:
        """Return the number of shared memory blocks of its process."""
        found = set()
        for fd in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # another thread has closed it
                if os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:evorl "):
                    found.add(os.stat(f"/proc/self/fd/{fd}").st_ino)
        return len(found)

    def pid(self, *_: Any) -> int:
        return os.getpid()

    def boom(self, first: int) -> int:
        if self.index >= first:
            raise KeyError(f"member {self.index} has no such thing")
        return self.index

    def refuse(self) -> None:
        raise VeryRefused("not today")

    def refuse_otherwise(self) -> None:
        """With an error of another package that has the name of `Refused`."""
        raise type("Refused", (ValueError,), {"__module__": "elsewhere"})("not by me")

    def unsendable(self, what: str) -> Any:
        return {"object": object(), "huge": 1 << 80, "text": "\ud800", "complex": np.zeros(2, complex)}[what]

    def surrogate(self) -> None:
        raise ValueError("\ud800 is not a character")

    def listen(self, word: str) -> None:
        if word == "bad":
            raise ValueError("bad word")

    def with_length(self, what: int, array: Any) -> list[int]:
        return [what, len(array)]

    def fragment(self, count: int) -> dict[str, Any]:
        self.sum += 1
        return {"index": self.index, "sum": self.sum, "array": np.full(count, self.sum * 100 + self.index, np.int64)}

    def nap(self, seconds: float) -> int:
        time.sleep(seconds)
        return self.index

    def work(self, seconds: float) -> int:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            heartbeat()
            time.sleep(0.05)
        return os.getpid()

    def drowse(self, seconds: float) -> int:
        time.sleep(seconds)
        return os.getpid()

    def plod(self, seconds: float) -> list[int]:
        time.sleep(seconds)
        return self.add(1)

    def open_files(self) -> int:
        return len(os.listdir("/proc/self/fd"))

    def _private(self) -> str:
        return "secret"

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self.sum, "history": np.arange(self.sum % 5)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sum = state["sum"]


class Large:
    """A member with a large state."""

    def __init__(self, index: int) -> None:
        self.x = np.full(30_000, index, np.uint8)

    def add(self) -> int:
        self.x = self.x + np.uint8(1)
        return int(self.x[0])

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.x = state["x"]


class Stateless:
    def __init__(self, index: int) -> None:
        self.index = index

    def which(self) -> int:
        return self.index


class BadState(Stateless):
    def state_dict(self) -> dict[str, Any]:
        raise RuntimeError("no state today") if self.index == 1 else TypeError("nor tomorrow")


class Closing:
    """A member that writes a file when it is closed."""

    def __init__(self, place: Path, index: int) -> None:
        self.path = place / str(index)

    def ready(self) -> bool:
        return not self.path.exists()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        with self.path.open("a") as file:
            file.write("closed\n")


def unmakeable(index: int) -> Counter:
    if index == 1:
        raise Refused("member 1 cannot be made")
    return Counter(index)


def files(sockets: bool = True) -> list[str]:
    """Return the kinds of this process's open files; ``sockets=False`` in tests of Ray, which opens its own."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # the descriptor of listdir itself
            continue
    return sorted(name.partition(":")[0] for name in found if sockets or not name.startswith("socket:"))
