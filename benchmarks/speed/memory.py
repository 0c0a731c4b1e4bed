"""What pictures of Atari take in a replay: bytes, and the time to store and to sample them.

Random play of three games, in 8 slots. The same decisions go into replays that hold stacks of four pictures whole, each
picture once, and each picture once and compressed (rl.compress). Of transitions: minibatches of 32 with three-step
returns. Of rollouts of 20 decisions: minibatches of 32, with time first. Samples alternate; one thread; medians.

    python benchmarks/speed/memory.py [--transitions 6400] [--samples 15] [--out DIR]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from common import alternate, arguments, machine, median, page, save

from evorl.mdp.atari import Atari
from evorl.mdp.core import Arena, Discrete, Spec
from evorl.replay.packed import Packed
from evorl.replay.rollouts import Rollouts
from evorl.replay.stacks import put_together, take_apart
from evorl.replay.storage import Fragment, Replay, Shape
from evorl.util.seed import Episodes

GAMES, FORMS = ("pong", "breakout", "seaquest"), ("whole", "frames", "compressed")
SLOTS, HORIZON, BATCH, MINIBATCHES, STEPS = 8, 20, 32, 16, 3

Columns = dict[str, Any]


def fragment(arena: Arena, rng: np.random.Generator, first: int) -> Fragment:
    seen, start = [], [np.zeros(SLOTS, bool)]
    assert isinstance(arena.spec.action, Discrete)
    action = rng.integers(0, arena.spec.action.n, (HORIZON, SLOTS, 1))
    reward, terminated, final = [], [], []
    for t in range(HORIZON):
        seen.append(arena.recv().inputs[0].copy())
        arena.send(np.arange(SLOTS), action[t])
        decisions = arena.recv()
        reward.append(decisions.reward.copy())
        terminated.append(decisions.terminated.copy())
        start.append(decisions.terminated | decisions.truncated)
        final.append(decisions.final[0].copy())
    seen.append(arena.recv().inputs[0].copy())
    return Fragment(
        [np.stack(seen)], None, action, np.stack(reward), np.stack(start[1:]), np.stack(terminated),
        [np.stack(final)], None, np.arange(SLOTS), np.full(SLOTS, first),
    )  # fmt: skip


def rollouts(new: Fragment) -> Columns:
    start = np.concatenate([np.zeros((1, SLOTS), bool), new.done])
    return {"input 0": new.inputs[0].swapaxes(0, 1), "start": start.T}


def whole(spec: Spec) -> Spec:
    return replace(spec, inputs=tuple(replace(entry, stacked=False) for entry in spec.inputs))


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def of_transitions(game: str, transitions: int, samples: int) -> dict[str, dict[str, float]]:
    """Of each form: bytes of a picture or stack, and microseconds and milliseconds of storing and sampling."""
    arena, rng, stored = Atari(game=game).arena(SLOTS, Episodes(1)), np.random.default_rng(1), dict[str, list[float]]()
    shape, spec = Shape(transitions, SLOTS), arena.spec
    replays = {
        "whole": Replay(whole(spec), shape), "frames": Replay(spec, shape),
        "compressed": Replay(spec, shape, compress=True),
    }  # fmt: skip
    pictures = Packed((transitions, *spec.inputs[0].shape[1:]), np.dtype(np.uint8))
    for first in range(0, transitions // SLOTS, HORIZON):
        new = fragment(arena, rng, first)
        for form in rng.permutation(FORMS).tolist():
            stored.setdefault(form, []).append(seconds(partial(replays[form].append, new)))
        pictures[first * SLOTS + np.arange(HORIZON * SLOTS)] = new.inputs[0][1:, :, -1].reshape(-1, *pictures.shape[1:])
    arena.close()
    replay = replays["whole"]
    numbers = rng.integers(replay.oldest(replay.count), replay.count, (samples, MINIBATCHES * BATCH))

    def sample(form: str) -> Callable[[int], float]:
        return lambda n: seconds(lambda: replays[form].read(numbers[n], replay.count, np.array([0.99]), STEPS))

    sampled = alternate({form: sample(form) for form in FORMS}, range(samples))
    size = {"whole": replay.inputs[0][0].nbytes, "frames": pictures.shape[1] * pictures.shape[2]}
    size["compressed"] = pictures.nbytes / transitions
    return {
        form: {
            "bytes": size[form], "store, us": 1e6 * median(stored[form]) / HORIZON / SLOTS,
            "sample, ms": 1e3 * median(sampled[form]) / MINIBATCHES,
        }
        for form in FORMS
    }  # fmt: skip


def put_rollouts(to: Rollouts, places: Any, form: str, columns: Columns, spec: Spec) -> None:
    to.put(places, columns if form == "whole" else take_apart(columns, spec.inputs))


def of_rollouts(game: str, transitions: int, samples: int) -> dict[str, dict[str, float]]:
    arena, rng, stored = Atari(game=game).arena(SLOTS, Episodes(2)), np.random.default_rng(2), dict[str, list[float]]()
    places, spec = transitions // HORIZON, arena.spec
    kept: dict[str, Rollouts] = {}
    for first in range(0, places, SLOTS):
        columns = rollouts(fragment(arena, rng, 0))
        for form in rng.permutation(FORMS).tolist():
            if form not in kept:
                kept[form] = Rollouts(columns if form == "whole" else take_apart(columns, spec.inputs), places)
                if form == "compressed":
                    kept[form].compress()

            put = partial(put_rollouts, kept[form], first + np.arange(SLOTS), form, columns, spec)
            stored.setdefault(form, []).append(seconds(put))
    arena.close()
    drawn = rng.integers(0, places, (samples, BATCH))

    def sample(form: str) -> Callable[[int], float]:
        def take_once(n: int) -> None:
            batch = kept[form].take(drawn[n])
            batch = batch if form == "whole" else put_together(batch, spec.inputs)
            np.ascontiguousarray(batch["input 0"].swapaxes(0, 1))

        return lambda n: seconds(lambda: take_once(n))

    sampled = alternate({form: sample(form) for form in FORMS}, range(samples))
    return {
        form: {
            "bytes": kept[form].bytes_each, "store, us": 1e6 * median(stored[form]) / SLOTS,
            "sample, ms": 1e3 * median(sampled[form]),
        }
        for form in FORMS
    }  # fmt: skip


def main() -> None:
    args = arguments(__doc__, transitions=6400, samples=15)
    torch.set_num_threads(1)
    by_name = {}
    for kind, measure in (("a transition's picture", of_transitions), ("a rollout", of_rollouts)):
        for game in GAMES:
            for form, figures in measure(game, args.transitions, args.samples).items():
                by_name[f"{kind}, {game}, {form}"] = figures
    header = ["", *next(iter(by_name.values()))]
    lines = [[name, *(f"{x:,.3g}" if x < 1000 else f"{x:,.0f}" for x in row.values())] for name, row in by_name.items()]
    save(args.out, machine(), page("Pictures in a replay", __doc__, header, lines), {"figures": by_name})


if __name__ == "__main__":
    main()
