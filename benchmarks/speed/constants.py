"""The constants of `scaling`, measured on this machine: whole parts of evorl, seconds each."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import zmq
from common import median
from crowd import Crowd
from ours import experiment
from scaling import Cost, Place, Work

from evorl.cluster.processes.fork import fork

FEW, MANY = 16, 256  # workers between which the driver's costs are taken to grow in a straight line


def work(words: str, seconds: float) -> Work:
    """Of one member and its learner, in one process."""
    from evorl.cluster.transport.wire import Packed
    from evorl.training.train import Run

    run = Run(experiment(words.split()))
    try:
        before = run.steps
        run.iterate()
        fragment = run.steps - before
        metrics = [run.iterate().metrics for _ in fitting(seconds)]
        streamed = run.experiment.rl.asynchronous
        weights = run.learner.weights()
        (answer,) = run.group.all("play", weights, 0, 0) if streamed else run.group.all("collect", weights, 0)
        (state,) = run.group.states()
        return Work(
            fragment=fragment,
            play_s=median([row["speed/sample_seconds"] for row in metrics]),
            learn_s=median([row["speed/update_seconds"] for row in metrics]),
            weights=Packed(run.learner.weights()).size,
            answer=sum(len(packed.body) + packed.size for packed in (Packed(answer), Packed(state))),
        )
    finally:
        run.close()


def fitting(seconds: float, least: int = 5) -> Iterator[int]:
    """Turns that begin within the time, some at least."""
    began, turn = time.perf_counter(), 0
    while turn < least or time.perf_counter() - began < seconds:
        yield turn
        turn += 1


class Echo:
    """The least member."""

    def __init__(self, index: int) -> None:
        self.index = index

    def say(self) -> int:
        return self.index

    def load(self, weights: np.ndarray) -> None:
        pass


def spent(action: Callable[[], object], seconds: float) -> float:
    """Seconds of this thread for one action, the median of many."""

    def once() -> float:
        began = time.thread_time()
        action()
        return time.thread_time() - began

    return median([once() for _ in fitting(seconds, 20)])


def place(weights: int, seconds: float) -> Place:
    """What messages and copies cost on this machine; the driver's share of a call grows with the workers it knows."""
    data = np.zeros(1 << 26, np.uint8)
    copying = median([timed(data.copy) for _ in fitting(seconds)])
    few, many = (messages(workers, weights, seconds) for workers in (FEW, MANY))
    call, take = (line(few[kind], many[kind]) for kind in ("call", "take"))
    return Place(call=call, take=take, memory=data.nbytes / copying, curve=curve(seconds))


def line(few: float, many: float) -> Cost:
    """The straight line through two costs."""
    each = max(0.0, (many - few) / (MANY - FEW))
    return max(0.0, few - FEW * each), each


def messages(workers: int, weights: int, seconds: float) -> dict[str, float]:
    """Seconds of the driver's thread for one call of `all`, and for one answer of `gather` with weights sent back."""
    from evorl.cluster.workers.group import RemoteGroup

    group = RemoteGroup(Crowd(Echo, workers), workers, 120.0, ())
    payload = np.zeros(weights, np.uint8)
    try:
        call = spent(lambda: group.all("say"), seconds) / workers
        answers = group.gather("load", payload)
        next(answers)
        take = spent(lambda: [answers.send((payload,)) for _ in range(workers)], seconds) / workers
    finally:
        group.close()
    return {"call": call, "take": take}


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def curve(seconds: float, size: int = 1 << 20, flight: int = 16) -> float:
    """Bytes per second through one encrypted connection on loopback."""
    keys, own_keys = zmq.curve_keypair(), zmq.curve_keypair()
    with listening(keys) as (socket, port):
        child = fork(partial(send, f"tcp://127.0.0.1:{port}", keys[0], own_keys, size, flight), keep=-1)
        try:
            name, _ = socket.recv_multipart()
            socket.send_multipart([name, b""])
            taken = [timed(lambda: take(socket, name, flight)) for _ in fitting(seconds)]
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return flight * size / median(taken)


@contextmanager
def listening(keys: tuple[bytes, bytes]) -> Iterator[tuple[Any, int]]:
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.linger = 0
    socket.curve_server, (socket.curve_publickey, socket.curve_secretkey) = True, keys
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    try:
        yield socket, port
    finally:
        socket.close()
        context.term()


def send(address: str, server: bytes, keys: tuple[bytes, bytes], size: int, flight: int) -> None:
    """A child that sends fragments for as long as it is asked for more."""
    socket = zmq.Context().socket(zmq.DEALER)
    socket.curve_serverkey, (socket.curve_publickey, socket.curve_secretkey) = server, keys
    socket.connect(address)
    socket.send(b"here")
    data = bytes(size)
    while True:
        socket.recv()
        for _ in range(flight):
            socket.send(data, copy=False)


def take(socket: Any, name: bytes, flight: int) -> None:
    for _ in range(flight):
        socket.recv_multipart(copy=False)
    socket.send_multipart([name, b""])


def ran(words: str, workers: int, seconds: float) -> float:
    """Environment steps per second of a whole run here, that many members on that many workers."""
    from evorl.training.train import Run

    where = f"cluster=processes cluster.workers={workers} rl.members={workers}"
    run = Run(experiment([*words.split(), *where.split()]))
    try:
        for _ in range(4 * workers):
            run.iterate()
        before, began = run.steps, time.perf_counter()
        for _ in fitting(seconds):
            run.iterate()
        return (run.steps - before) / (time.perf_counter() - began)
    finally:
        run.close()
