"""The replay of transitions: appending, sampling, and the pause of a checkpoint, at HalfCheetah's shapes.

A replay of --capacity transitions is filled with fragments of 32 decisions. Then checkpoints are saved, one after each
--every new transitions, into a temporary folder. As in a run, rows are written ahead between checkpoints whenever new
ones fill a segment, so a checkpoint links most of its new files. memcpy is the floor of an append: the bytes of a
fragment, copied once.

    python benchmarks/speed/replay.py [--capacity 1_000_000] [--every 50_000] [--samples 5] [--out DIR]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from common import arguments, machine, median, page, save

from evorl.mdp.core import Box, Input, Spec
from evorl.record import checkpoint
from evorl.replay.samplers.uniform import uniform
from evorl.replay.storage import Fragment, Replay, Shape

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
    replay, next_fragment = Replay(SPEC, Shape(args.capacity, 1)), 0
    some = [fragment(i) for i in range(1000)]

    def append_one() -> None:
        nonlocal next_fragment
        replay.append(some[next_fragment % 1000]._replace(first=np.array([next_fragment * HORIZON])))
        next_fragment += 1

    def write_ahead() -> None:
        checkpoint.write_ahead(segments, {"replay": replay.appended_rows()})

    def written_to() -> list[int]:
        return [files[-1].end for files in segments.known.values() if files]

    count, appends, looks, ahead = args.capacity + args.every, [], [], []
    pauses, written = [], []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "checkpoints").mkdir()
        segments = checkpoint.segments_of(Path(folder))
        for number in range(args.samples + 1):
            for _ in range((args.every if number else count) // HORIZON):
                appends.append(seconds(append_one))
                former = written_to()
                took = seconds(write_ahead)
                (looks if written_to() == former else ahead).append(took)
            state = {"replay": replay.state_dict()}
            pauses.append(seconds(partial(checkpoint.save, Path(folder), number, state, 2, segments=segments)))
            files = (Path(folder) / "checkpoints" / str(number)).glob("*")
            written.append(sum(file.stat().st_size for file in files if file.stat().st_nlink == 1))
    sizes = [np.ones(sum(x.nbytes for x in (rows.inputs[0], rows.action, rows.reward)), np.uint8) for rows in some]
    floor = seconds(lambda: [x.copy() for x in sizes]) / 1000 / HORIZON

    def sample() -> None:
        numbers = uniform(5, 0, STEPS, BATCH, replay.oldest(replay.count), replay.count)
        replay.read(numbers.reshape(-1), replay.count, np.array([0.99]))

    draws = [seconds(sample) / STEPS for _ in range(20 * args.samples)]
    figures = {
        "append, us per transition": 1e6 * sum(appends) / len(appends) / HORIZON,
        "floor: memcpy, us per transition": 1e6 * floor,
        f"a minibatch of {BATCH}, us": 1e6 * median(draws),
        "a segment written ahead, ms": 1e3 * median(ahead),
        "longest of these, ms": 1e3 * max(ahead),
        "looking whether there is one to write, us": 1e6 * median(looks),
        "first checkpoint, ms": 1e3 * pauses[0],
        "in its new files, MB": written[0] / 1e6,
        "next checkpoints, ms": 1e3 * median(pauses[1:]),
        "longest checkpoint, ms": 1e3 * max(pauses),
        "in their new files, MB": median(written[1:]) / 1e6,
    }
    lines = [[name, f"{x:.4g}"] for name, x in figures.items()]
    text = page("The replay of transitions", __doc__, ["figure", "value"], lines)
    save(args.out, machine(), text, {"figures": figures})


if __name__ == "__main__":
    main()
