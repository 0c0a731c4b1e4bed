"""How long a killed worker holds up its group: from SIGKILL to the answer, on `cluster=processes` with two workers.

A group of four members is called repeatedly, as a synchronous run calls it. At a random moment of a call, one worker is
killed, or all of them, or the supervisor that forks them (its workers die with it). The table shows the time from the
kill to the reply of that call, and the time of an undisturbed call. If both are equal, the lost work was repeated and
nothing else was waited for. The members are bare counters, samplers with the default settings of Pong, and samplers of
the coroutine world, whose episodes are replayed from their actions. A stopped worker is detected after
`cluster.deadline_s`; the last column is the time from then on.

    python benchmarks/faults/recovery.py [--samples 40] [--hangs 3] [--out DIR]
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import arguments, machine, median, page, save
from ours import experiment

from evorl.cluster.processes import Processes
from evorl.training.train import Run

DEADLINE_S = 5.0
WORDS = f"rl.members=4 cluster=processes cluster.workers=2 cluster.deadline_s={DEADLINE_S}"
CASES = {
    "counters": "",
    "Pong, our defaults": "mdp=pong rl=ppo",
    "Duel, 16 slots": "mdp=duel rl=ppo rl.slots=16 rl.horizon=64",
}


class Counter:
    """A member with next to nothing to make or restore; a call takes it 10 ms."""

    def __init__(self, index: int) -> None:
        self.sum = 0

    def add(self) -> int:
        time.sleep(0.01)
        self.sum += 1
        return self.sum

    def state_dict(self) -> dict[str, int]:
        return {"sum": self.sum}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.sum = state["sum"]


@contextmanager
def called(words: str) -> Iterator[tuple[Any, Callable[[], object]]]:
    """A group, and its call."""
    if not words:
        group: Any = Processes(workers=2, deadline_s=DEADLINE_S).spawn(Counter, 4)
        yield group, lambda: group.all("add")
        group.close()
        return
    run = Run(experiment([*words.split(), *WORDS.split()]))
    weights = run.learner.weights()
    yield run.group, lambda: run.group.all("collect", weights, 0)
    run.close()


def workers(group: Any) -> list[int]:
    return [handle.process.reader.pid for handle in group.pool.handles]


def supervisor(group: Any) -> list[int]:
    return [group.pool.launcher._supervisors[0].pid.number]


VICTIMS: dict[str, Callable[[Any], list[int]]] = {
    "one worker": lambda group: workers(group)[:1],
    "all workers": workers,
    "their supervisor": supervisor,
}


def recovery(group: Any, call: Callable[[], object], victims: list[int], number: int, after_s: float) -> float:
    """Seconds from a signal, sent so long after the call began, to the call's answer."""
    sent: list[float] = []

    def strike() -> None:
        sent.append(time.perf_counter())
        for pid in victims:
            os.kill(pid, number)

    timer = threading.Timer(after_s, strike)
    timer.start()
    call()
    answered = time.perf_counter()
    timer.join()
    while answered < sent[0]:  # the answer was quicker: it is the next one that has to wait
        call()
        answered = time.perf_counter()
    return answered - sent[0]


def took(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure(words: str, samples: int, hangs: int) -> dict[str, list[float]]:
    draw = random.Random(words)
    with called(words) as (group, call):
        call()
        usual = [took(call) for _ in range(10)]
        seconds = {"undisturbed": usual}
        for name, victims in VICTIMS.items():
            seconds[name] = []
            for _ in range(samples):
                moment = draw.uniform(0, median(usual))
                seconds[name].append(recovery(group, call, victims(group), signal.SIGKILL, moment))
                for _ in range(2):
                    call()
        seconds["stopped"] = [
            recovery(group, call, workers(group)[:1], signal.SIGSTOP, draw.uniform(0, median(usual))) - DEADLINE_S
            for _ in range(hangs)
        ]
    return seconds


def row(name: str, seconds: dict[str, list[float]]) -> list[str]:
    undisturbed = median(seconds["undisturbed"])
    kills = [f"{1e3 * median(seconds[which]):.0f} ({1e3 * max(seconds[which]):.0f})" for which in VICTIMS]
    return [name, f"{1e3 * undisturbed:.0f}", *kills, f"{1e3 * median(seconds['stopped']):.0f}"]


def main() -> None:
    args = arguments(__doc__, samples=40, hangs=3)
    facts, results = machine(), {}
    head = ["ms, median (worst)", "a call, undisturbed", *VICTIMS, "stopped, after the deadline"]
    lines: list[list[str]] = []
    for name, words in CASES.items():
        results[name] = measure(words, args.samples, args.hangs)
        lines.append(row(name, results[name]))
        print("  ".join(lines[-1]), flush=True)
        title = "Recovery from a killed process"
        save(args.out, facts, page(title, __doc__, head, lines), {"deadline_s": DEADLINE_S, "cases": results})


if __name__ == "__main__":
    main()
