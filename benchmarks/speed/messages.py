"""A worker that sends and receives without learning, for cluster.py: python messages.py WHAT HOW (see `common.serve`).

WHAT: all (10 MB to every process and an acknowledgement from each), any (calls with next to nothing in them) or gather
(1 MB fragments, each copied into memory of the consumer's own). HOW: evorl, ray, or bare, which is the least that
does the same: shared memory, and a byte or a small ZeroMQ message to say that something is there.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import serve

Array = np.ndarray
Update = Callable[[], int]

PROCESSES = {"all": 4, "any": 1, "gather": 2}
LARGE, FRAGMENT = 10_000_000, 1 << 20  # bytes
CALLS, FLIGHT = 1000, 64
AHEAD = 2  # fragments of each process that wait to be taken


class Member:
    """What is called."""

    def __init__(self, index: int) -> None:
        self.fragment = np.full(FRAGMENT, index, np.uint8)

    def length(self, what: Array) -> int:
        return what.nbytes

    def echo(self, what: int) -> int:
        return what

    def play(self) -> Array:
        return self.fragment


def weights() -> Array:
    """What `all` hands out: written memory, for pages that nobody has written are all one page of zeros."""
    return np.random.default_rng(0).integers(0, 256, LARGE, np.uint8)


def renewed(large: Array) -> Array:
    """The same array with other bytes, as weights are after an update: what has not changed need not travel again."""
    large[::4096] += 1
    return large


# ------------------------------------------------------------------ ours


def evorl(what: str) -> tuple[Update, Callable[[], None]]:
    from evorl.cluster.processes import Processes

    processes = PROCESSES[what]
    group = Processes(workers=processes).spawn(Member, processes)
    large, own = weights(), np.empty(FRAGMENT, np.uint8)
    fragments = group.gather("play") if what == "gather" else iter(())
    return {
        "all": lambda: check(group.all("length", renewed(large)), [LARGE] * processes),
        "any": lambda: check(list(group.map("echo", ((n,) for n in range(CALLS)))), range(CALLS)),
        "gather": lambda: keep(own, next(fragments)[1]),
    }[what], group.close


def check(answers: list[Any], expected: Any) -> int:
    """How much was done; raises SystemExit where something else came."""
    if answers != list(expected):
        raise SystemExit("wrong answers")
    return 1 if len(answers) < CALLS else len(answers)


def keep(own: Array, fragment: Array) -> int:
    np.copyto(own, fragment)
    return 1


# ------------------------------------------------------------------ Ray's


def ray(what: str) -> tuple[Update, Callable[[], None]]:
    import ray as framework

    processes = PROCESSES[what]
    framework.init("local", num_cpus=processes, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    actors = [framework.remote(Member).remote(index) for index in range(processes)]
    large, own = weights(), np.empty(FRAGMENT, np.uint8)

    def tell() -> int:
        place = framework.put(renewed(large))
        return check(framework.get([actor.length.remote(place) for actor in actors]), [LARGE] * processes)

    def call() -> int:
        return check(framework.get([actors[n % processes].echo.remote(n) for n in range(CALLS)]), range(CALLS))

    under_way = {actor.play.remote(): actor for actor in actors * AHEAD} if what == "gather" else {}

    def take() -> int:
        (first, *_), _ = framework.wait([*under_way])
        actor = under_way.pop(first)
        keep(own, framework.get(first))
        under_way[actor.play.remote()] = actor
        return 1

    return {"all": tell, "any": call, "gather": take}[what], framework.shutdown


# ------------------------------------------------------------------ the least


def bare(what: str) -> tuple[Update, Callable[[], None]]:
    update, children = {"all": bare_all, "any": bare_any, "gather": bare_gather}[what]()

    def close() -> None:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    return update, close


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(1)
    return child


def shared(size: int) -> Array:
    """Memory that children share."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def bare_all() -> tuple[Update, list[int]]:
    """One copy in, a byte to each process, a copy out in each, a byte back."""
    block, large = shared(LARGE), weights()

    def read(end: socket.socket) -> None:
        while end.recv(1):
            end.send(bytes([len(block.copy()) == LARGE]))

    pairs = [socket.socketpair() for _ in range(PROCESSES["all"])]
    children = [fork(partial(read, end)) for _, end in pairs]

    def tell() -> int:
        np.copyto(block, renewed(large))
        for end, _ in pairs:
            end.send(b"1")
        return check([end.recv(1) for end, _ in pairs], [b"\x01"] * len(pairs))

    return tell, children


def bare_any() -> tuple[Update, list[int]]:
    """A ROUTER and a DEALER, a number to and fro, 64 under way."""
    import zmq

    place = f"ipc://{tempfile.mkdtemp()}/bare"

    def echo() -> None:
        end = zmq.Context().socket(zmq.DEALER)
        end.connect(place)
        end.send(b"")
        while True:
            end.send(end.recv())

    child = fork(echo)
    end = zmq.Context().socket(zmq.ROUTER)
    end.bind(place)
    name, _ = end.recv_multipart()
    Path(place.removeprefix("ipc://")).unlink()  # nobody else connects
    Path(place.removeprefix("ipc://")).parent.rmdir()

    def answers() -> Iterator[int]:
        for n in range(CALLS + FLIGHT):
            if n < CALLS:
                end.send_multipart([name, b"%d" % n])
            if n >= FLIGHT:
                yield int(end.recv_multipart()[1])

    return lambda: check(list(answers()), range(CALLS)), [child]


def bare_gather() -> tuple[Update, list[int]]:
    """Each process copies its fragment into one of its places in turn, the consumer out of it; a byte for each."""
    pairs, places, children = [], [], []
    for index in range(PROCESSES["gather"]):
        pairs.append(socket.socketpair())
        places.append(shared(AHEAD * FRAGMENT).reshape(AHEAD, FRAGMENT))
        children.append(fork(partial(write, Member(index), places[-1], pairs[-1][1])))
    own = np.empty(FRAGMENT, np.uint8)
    turns = deque((index, place) for place in range(AHEAD) for index in range(len(pairs)))

    def take() -> int:
        index, place = turns[0]
        turns.rotate(-1)
        pairs[index][0].recv(1)
        keep(own, places[index][place])
        pairs[index][0].send(b"1")
        return 1

    return take, children


def write(member: Member, places: Array, end: socket.socket) -> None:
    turn = 0
    while True:
        if turn >= AHEAD:
            end.recv(1)
        np.copyto(places[turn % AHEAD], member.play())
        end.send(b"1")
        turn += 1


def main() -> None:
    what, how = sys.argv[1:]
    update, close = {"evorl": evorl, "ray": ray, "bare": bare}[how](what)
    try:
        serve(update, "ray", "pyzmq", "msgspec")
    finally:
        close()


if __name__ == "__main__":
    main()
