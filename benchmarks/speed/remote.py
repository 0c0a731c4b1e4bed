"""Speed of ``mdp=remote``: games in other processes, over loopback, on the same cores as evorl.

``numbers`` is a game without rules, in Python: 16 numbers, 5 choices with a mask; ``sumo`` is the example in
JavaScript, whose discs decide every 4 ticks. With 64 battles of two sides: decisions per second, and what of its
processor evorl spends on one. With one battle: microseconds from the answer to the next row, also beside ``echo``: two
Python programs that send each other as many bytes through the same kind of socket, without arena and client: what is
left of a round trip if nobody computes. Medians over the rounds, in which all take turns.

    python benchmarks/speed/remote.py [--seconds 1.5] [--rounds 5] [--out DIR]

On a busy machine a round trip waits for a core. `chrt -f 1 python benchmarks/speed/remote.py --seconds 0.3` lets its
programs go before all others.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from common import alternate, arguments, machine, median, page, save

from evorl.mdp.core import Arena
from evorl.mdp.decision_arrays import action_format
from evorl.mdp.remote import Remote
from evorl.util.seed import Episodes

BATTLES = 64
NUMBERS = f"{sys.executable} {Path(__file__).resolve().parent}/remote_game.py"
SUMO = "node {clients}/javascript/sumo/sumo.js"
ASKED, ANSWERED = 230, 80
"""Bytes of a message of one row of ``numbers``, and of its answer."""


class Played:
    """An arena whose slots always take the first choice."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        dtype, width = action_format(arena.spec.action)
        self.actions = np.zeros((arena.slots, width), dtype)

    def rate(self, seconds: float) -> dict[str, float]:
        """Decisions per second, and the microseconds of this process's processor that a decision takes."""
        made, began, busy = 0, time.perf_counter(), time.process_time()
        while (passed := time.perf_counter() - began) < seconds:
            slots = self.arena.recv().slots
            self.arena.send(slots, self.actions[: len(slots)])
            made += len(slots)
        return {"decisions/s": made / passed, "cpu": 1e6 * (time.process_time() - busy) / made}

    def delays(self, seconds: float) -> dict[str, float]:
        """Percentiles of the microseconds of a round trip."""
        microseconds, ends = list[float](), time.perf_counter() + seconds
        slots = self.arena.recv().slots
        while (began := time.perf_counter()) < ends:
            self.arena.send(slots, self.actions[: len(slots)])
            slots = self.arena.recv().slots
            microseconds.append(1e6 * (time.perf_counter() - began))
        self.arena.send(slots, self.actions[: len(slots)])
        return percentiles(microseconds)


class Echo:
    """A forked program that answers each message with another one."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listens:
            self.child = os.fork()
            if not self.child:
                with socket.create_connection(listens.getsockname()) as end:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    while end.recv(ANSWERED, socket.MSG_WAITALL):
                        end.sendall(bytes(ASKED))
                os._exit(0)
            self.end, _ = listens.accept()
        self.end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def delays(self, seconds: float) -> dict[str, float]:
        microseconds, ends = list[float](), time.perf_counter() + seconds
        while (began := time.perf_counter()) < ends:
            self.end.sendall(bytes(ANSWERED))
            self.end.recv(ASKED, socket.MSG_WAITALL)
            microseconds.append(1e6 * (time.perf_counter() - began))
        return percentiles(microseconds)

    def close(self) -> None:
        self.end.close()
        os.waitpid(self.child, 0)


def percentiles(delays: list[float]) -> dict[str, float]:
    return {f"p{each}": float(np.percentile(delays, each)) for each in (5, 50, 99)}


def main() -> None:
    args = arguments(__doc__, seconds=1.5, rounds=5)
    facts, rates = machine(), dict[str, Callable[[int], Any]]()
    facts["scheduler"] = "first in, first out, before all others" if os.sched_getscheduler(0) else "the usual one"
    with ExitStack() as stack:
        echo = stack.enter_context(closing(Echo()))

        def played(command: str, slots: int, **keys: Any) -> Played:
            world = stack.enter_context(closing(Remote(command=command, **keys)))
            game = Played(stack.enter_context(closing(world.arena(slots, Episodes(0)))))
            game.rate(0.5)  # warm up
            return game

        many = {
            "numbers, one process": played(f"{NUMBERS} 2", 2 * BATTLES),
            "numbers, two processes": played(f"{NUMBERS} 2", 2 * BATTLES, processes=2),
            "sumo, one process": played(SUMO, 2 * BATTLES),
        }
        single = {
            "numbers, one battle of one side": played(f"{NUMBERS} 1", 1),
            "numbers, one battle of two sides": played(f"{NUMBERS} 2", 2, deadline_s=31.0),
            "sumo, one battle of two sides": played(SUMO, 2, deadline_s=31.0),
        }
        rates = {name: lambda _, game=game: game.rate(args.seconds) for name, game in many.items()}
        rates |= {
            name: lambda _, game=game: game.delays(args.seconds) for name, game in (single | {"echo": echo}).items()
        }
        results = alternate(rates, range(args.rounds))
    columns = ("decisions/s", "cpu", "p5", "p50", "p99", "times echo")
    for samples in results.values():
        for sample, floor in zip(samples, results["echo"], strict=True):
            if "p99" in sample:
                sample["times echo"] = sample["p99"] / floor["p99"]
    rows = [
        [
            name,
            *(f"{median([sample[each] for sample in samples]):,.1f}" if each in samples[0] else "" for each in columns),
        ]
        for name, samples in results.items()
    ]
    head = ["game", "decisions/s", "of evorl's processor, us a decision", "round trip, us: best 5 %", "median", "p99"]
    head += ["p99 / echo's"]
    save(args.out, facts, page("Games in other programs", __doc__, head, rows), {"results": results})


if __name__ == "__main__":
    main()
