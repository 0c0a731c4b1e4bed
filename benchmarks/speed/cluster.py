"""What it costs to have members elsewhere: messages against Ray's and against the least, runs against cluster=local.

Messages, all on this machine, one contestant at a time, alternating:
`all`: 10 MB to each of 4 processes, and an acknowledgement from each. Ray: one ray.put and 4 actor calls; its actors
see the object's memory and our members the driver's; the bare ones get a copy of their own.
`any`: calls of one process with a number in and out, 1,000 given at once; ours as a `map`. Ray: 1,000 calls of an actor
and one ray.get. Bare: a ROUTER and a DEALER, 64 messages under way.
`gather`: 1 MB from 2 processes that always have the next one, copied to where the consumer wants it. Ray: two
fragments of each actor under way, as objects. Bare: a copy into shared memory and one out of it, side by side.

Runs: Pong PPO in one worker against local, free and with all processes held to one core, which leaves our own work
alone (on two, each core sleeps, and cools, while the other one's process works); a world whose every step burns 1 ms
of CPU, 2 members on 2 workers against on 1; a world whose steps cost about as much as learning from them (the share of
time that local plays, 0.5, is given), asynchronous in one worker against local; seconds from the command to the first
row of metrics, after one batch of CartPole.

Whatever alternates is compared round by round, and the median of those ratios given, since a machine's speed drifts.
What must come within 5 % has four times the rounds.

    python benchmarks/speed/cluster.py [--samples 7] [--seconds 1] [--out DIR]
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from operator import truediv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import OURS, ROOT, Worker, alternate, arguments, machine, median, page, save

HOW = {"evorl": "evorl", "Ray": "ray", "bare": "bare"}
UNITS = {"all": (1.0, "times/s"), "any": (1.0, "calls/s"), "gather": (2**20 / 1e9, "GB/s")}
AIMS = {"all": "3 times Ray", "any": "10 times Ray", "gather": "3 times Ray or 0.6 of bare"}
PONG = ("mdp=pong", "rl=ppo")
BURN = ("1", "mdp=cartpole", "rl=ppo", "rl.members=2", "rl.slots=4", "rl.horizon=32", "rl.minibatch=256", "rl.passes=1")
EVEN = ("0.1", "mdp=cartpole", "rl=ppo", "rl.slots=8", "rl.horizon=64", "rl.minibatch=64", "rl.passes=10")
EVENLY = "steps as costly as learning"
PLACES = {
    "local": ("cluster=local",),
    "processes": ("cluster=processes", "cluster.workers=2"),
    "ray": ("cluster=ray", "cluster.workers=2"),
}
QUICK = ("mdp=cartpole", "rl=ppo", "rl.members=2", "rl.slots=4", "rl.horizon=32", "rl.minibatch=256", "eval.every=0")
Samples = dict[str, list[float]]


def rates(
    commands: dict[str, tuple[str, ...]], samples: int, seconds: float, cores: int | None = None
) -> tuple[Samples, dict[str, str]]:
    """Of each worker program, what it does in a second, on so many cores (null: all); and the versions of the last."""
    with ExitStack() as stack:
        every = os.sched_getaffinity(0)
        stack.callback(os.sched_setaffinity, 0, every)
        os.sched_setaffinity(0, sorted(every)[:cores])  # what we start inherits it
        workers = {name: stack.enter_context(Worker(OURS, *words)) for name, words in commands.items()}
        contests = {name: lambda _, w=worker: w.rate(seconds) for name, worker in workers.items()}
        return alternate(contests, range(samples)), list(workers.values())[-1].versions


def first_row(words: tuple[str, ...], _: int) -> float:
    """Seconds from the command to the first row of metrics."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        began = time.perf_counter()
        command = [OURS, "-m", "evorl.run", *QUICK, *words, f"hydra.run.dir={place}"]
        with (Path(folder) / "said").open("w+") as said:
            process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)
            while not written(place / "metrics.jsonl"):
                if process.poll() is not None:
                    said.seek(0)
                    raise SystemExit(f"{said.read()}evorl.run {' '.join(words)} ended with {process.returncode}")
                time.sleep(0.005)
            seconds = time.perf_counter() - began
            process.terminate()
            process.wait()
        return seconds


def written(path: Path) -> bool:
    return path.exists() and b"\n" in path.read_bytes()


# ------------------------------------------------------------------ pages


def message_rows(what: str, by_name: Samples) -> list[list[str]]:
    scale, unit = UNITS[what]
    return [
        [f"`{what}`, {unit}: {name}", f"{scale * median(samples):,.2f}", spread(samples, scale),
         "" if name == "evorl" else f"{over(by_name['evorl'], samples):.2f}", AIMS[what] if name == "Ray" else ""]
        for name, samples in by_name.items()
    ]  # fmt: skip


def run_rows(title: str, by_name: Samples, aim: str) -> list[list[str]]:
    """Rates of two, the last against the first."""
    (_, base), _ = by_name.items()
    return [
        [f"{title}: {name}", f"{median(samples):,.0f}", spread(samples),
         "" if samples is base else f"{over(samples, base):.4f}", "" if samples is base else aim]
        for name, samples in by_name.items()
    ]  # fmt: skip


def share_rows(by_name: Samples) -> list[list[str]]:
    (samples,) = by_name.values()
    return [[f"{EVENLY}, local: share of time that it plays", f"{median(samples):.2f}", spread(samples), "", "0.5"]]


def start_rows(by_name: Samples) -> list[list[str]]:
    aims = {"processes": "2 s more than local", "ray": "10 s more than local"}
    return [
        [f"command to first row, s: {name}", f"{median(samples):.2f}", spread(samples),
         f"+{median(samples) - median(by_name['local']):.2f} s" if name in aims else "", aims.get(name, "")]
        for name, samples in by_name.items()
    ]  # fmt: skip


def over(ones: list[float], others: list[float]) -> float:
    return median(map(truediv, ones, others))


def spread(samples: list[float], scale: float = 1.0) -> str:
    return f"{scale * min(samples):,.2f} to {scale * max(samples):,.2f}"


def main() -> None:
    args = arguments(__doc__, samples=7, seconds=1.0)
    facts, results, lines = machine(), {}, []
    head = ["", "median", "range", "evorl over it, or over the first", "aim"]

    def note(name: str, by_name: Samples, rows: Callable[[Samples], list[list[str]]], **about: Any) -> None:
        results[name] = {"samples": by_name, **about}
        lines.extend(rows(by_name))
        save(args.out, facts, page("Members elsewhere", __doc__, head, lines), results)

    for what in UNITS:
        print(what, flush=True)
        commands = {name: ("messages.py", what, how) for name, how in HOW.items()}
        by_name, facts["messages"] = rates(commands, args.samples, args.seconds)
        note(what, by_name, partial(message_rows, what), commands=commands)
    pong = {"local": ("ours.py", *PONG), "1 worker": ("ours.py", *PONG, "cluster=processes", "cluster.workers=1")}
    pairs = {
        "Pong PPO, steps/s": (pong, "within 5 %", 4 * args.samples, None),
        "Pong PPO on one core, steps/s": (pong, "within 5 %", 4 * args.samples, 1),
        "steps that burn 1 ms, steps/s": (
            {f"{n} workers": ("burn.py", *BURN, "cluster=processes", f"cluster.workers={n}") for n in (1, 2)},
            "1.8",
            args.samples,
            None,
        ),
        f"{EVENLY}, steps/s": (
            {
                "local": ("burn.py", *EVEN),
                "asynchronous, 1 worker": (
                    *("burn.py", *EVEN, "rl.asynchronous=true"),
                    *("cluster=processes", "cluster.workers=1"),
                ),
            },
            "1.5",
            args.samples,
            None,
        ),
    }
    for title, (commands, aim, rounds, cores) in pairs.items():
        print(title, flush=True)
        note(title, rates(commands, rounds, args.seconds, cores)[0], lambda f, t=title, a=aim: run_rows(t, f, a))
    print("share", flush=True)
    note("share", rates({"local": ("burn.py", "playing", *EVEN)}, args.samples, args.seconds)[0], share_rows)
    print("start", flush=True)
    contests = {name: partial(first_row, words) for name, words in PLACES.items()}
    note("start", alternate(contests, range(args.samples)), start_rows)


if __name__ == "__main__":
    main()
