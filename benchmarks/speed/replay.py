"""The replay of transitions: appending, sampling, and the pause of a checkpoint, at HalfCheetah's shapes.

A replay of --capacity transitions is filled with fragments of 32 decisions. Then checkpoints are saved, one after each
--every new transitions, into a temporary folder; the first one writes everything. memcpy is the floor of an append: the
bytes of a fragment, copied once.

    python benchmarks/speed/replay.py [--capacity 1_000_000] [--every 50_000] [--samples 5] [--out DIR]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import arguments, machine, median, page, save

from evorl.mdp.core import Box, Input, Spec
from evorl.record import checkpoint
from evorl.replay.storage import Fragment, Replay, Shape
from evorl.replay.uniform import uniform

SPEC = Spec((Input("observation", (17,)),), Box((-1.0,) * 6, (1.0,) * 6))
HORIZON, BATCH, STEPS = 32, 256, 32


def fragment(number: int) -> Fragment:
    rng = np.random.default_rng(number)
    states = [rng.random((HORIZON + 1, 1, 17), np.float32)]
    done = np.zeros((HORIZON, 1), bool)
    done[-1] = (number + 1) * HORIZON % 1000 < HORIZON  # truncated every 1000 decisions
    return Fragment(
        states, None, rng.random((HORIZON, 1, 6), np.float32), rng.random((HORIZON, 1, 1), np.float32), done,
        np.zeros_like(done), [states[0][1:]], None, np.zeros(1, np.int64), np.array([number * HORIZON]),
    )  # fmt: skip


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    args = arguments(__doc__, capacity=1_000_000, every=50_000, samples=5)
    replay, told = Replay(SPEC, Shape(args.capacity, 1)), 0
    some = [fragment(i) for i in range(1000)]

    def fill(count: int) -> None:
        nonlocal told
        for _ in range(count // HORIZON):
            replay.append(some[told % 1000]._replace(first=np.array([told * HORIZON])))
            told += 1

    append = seconds(lambda: fill(args.capacity + args.every)) / (args.capacity + args.every)
    sizes = [np.ones(sum(x.nbytes for x in (one.inputs[0], one.action, one.reward)), np.uint8) for one in some]
    floor = seconds(lambda: [x.copy() for x in sizes]) / 1000 / HORIZON

    def sample() -> None:
        numbers = uniform(5, 0, STEPS, BATCH, replay.oldest(replay.count), replay.count)
        replay.read(numbers.reshape(-1), replay.count, np.array([0.99]))

    draws = [seconds(sample) / STEPS for _ in range(20 * args.samples)]
    pauses, written = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.samples + 1):
            state, previous = {"replay": replay.state_dict()}, number - 1 if number else None
            began = time.perf_counter()
            place = checkpoint.save(Path(folder), number, state, 2, previous=previous)
            pauses.append(time.perf_counter() - began)
            written.append(sum(one.stat().st_size for one in place.glob("*") if one.stat().st_nlink == 1))
            fill(args.every)
    figures = {
        "append, us per transition": 1e6 * append,
        "floor: memcpy, us per transition": 1e6 * floor,
        f"a minibatch of {BATCH}, us": 1e6 * median(draws),
        "first checkpoint, ms": 1e3 * pauses[0],
        "first checkpoint, MB": written[0] / 1e6,
        "next checkpoints, ms": 1e3 * median(pauses[1:]),
        "longest of these, ms": 1e3 * max(pauses[1:]),
        "next checkpoints, MB": median(written[1:]) / 1e6,
    }
    lines = [[name, f"{x:.4g}"] for name, x in figures.items()]
    text = page("The replay of transitions", __doc__, ["figure", "value"], lines)
    save(args.out, machine(), text, {"figures": figures})


if __name__ == "__main__":
    main()
