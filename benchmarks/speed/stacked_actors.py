"""Gradient steps of actors that follow one critic: K together in products of stacked weights, or one after another.

With HalfCheetah's shapes, a full replay of random transitions, and everything that training costs: minibatches and
noise drawn for each actor, the steps, and their statistics. A number is gradient steps of all K actors per second, the
median of the samples; both ways alternate. Each case runs with 1 thread and with 2 (--threads N: up to N).

    python benchmarks/speed/stacked_actors.py [--samples 5] [--seconds 0.5] [--threads 2] [--out DIR]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from common import alternate, arguments, machine, median, page, save
from replay import HORIZON, SPEC, fragment

from evorl.nets.policy import Net
from evorl.rl.replay_learner import Reading
from evorl.rl.sac import SAC
from evorl.rl.separate_updates import AnyLearner, train_actor, train_actors
from evorl.rl.td3 import TD3

SIZES = {
    "64-64, batch 100": ((64, 64), 100),
    "256-256, batch 256": ((256, 256), 256),
    "400-300, batch 256": ((400, 300), 256),
}
STACKS = (1, 2, 5, 10)
CAPACITY, STEPS = 100_000, 16


def learner(algorithm: str, hidden: tuple[int, ...], batch: int) -> AnyLearner:
    """With a full replay."""
    settings: dict[str, Any] = {"batch": batch, "capacity": CAPACITY}
    if algorithm == "TD3":
        made: Any = TD3(net=Net(hidden=hidden, activation="relu", output="tanh"), **settings)
    else:
        made = SAC(net=Net(hidden=hidden, activation="relu", std="state"), **settings)
    off_policy = cast(AnyLearner, made.learner(SPEC, 0, torch.device("cpu")))
    some = [fragment(i) for i in range(1000)]
    for number in range(CAPACITY // HORIZON):
        off_policy.replay.append(some[number % 1000]._replace(first=np.array([number * HORIZON])))
    return off_policy


def rate(train: Callable[[], object], number: int, seconds: float) -> float:
    """Gradient steps per second of ``number`` actors."""
    trained, began = 0, time.perf_counter()
    while not trained or time.perf_counter() - began < seconds:
        train()
        trained += number
    return trained * STEPS / (time.perf_counter() - began)


def contestants(
    learner: AnyLearner, stacks: tuple[int, ...], seconds: float
) -> dict[tuple[int, str], Callable[[int], float]]:
    reading = Reading(learner.replay, learner.replay.count, learner.replay.oldest(learner.replay.count))

    def together(theta: torch.Tensor) -> object:
        return train_actors(learner, theta, reading, STEPS, range(len(theta)), 0)

    def apart(theta: torch.Tensor) -> object:
        return [train_actor(learner, x, reading, STEPS, k, 0) for k, x in enumerate(theta)]

    contests: dict[tuple[int, str], Callable[[int], float]] = {}
    for number, (name, train) in itertools.product(stacks, {"together": together, "apart": apart}.items()):
        theta = learner.theta.repeat(number, 1)
        train(theta)  # records the operations
        contests[number, name] = lambda _, train=train, theta=theta: rate(lambda: train(theta), len(theta), seconds)
    return contests


def main() -> None:
    args = arguments(__doc__, samples=5, seconds=0.5, threads=2)
    rows, data, facts = [], [], machine()
    header = ["actors", "threads", "K", "together", "one after another", "ratio"]
    for algorithm, (name, size), threads in itertools.product(
        ("TD3", "SAC"), SIZES.items(), range(1, args.threads + 1)
    ):
        print(algorithm, name, threads, flush=True)
        torch.set_num_threads(threads)
        answers = alternate(contestants(learner(algorithm, *size), STACKS, args.seconds), range(args.samples))
        for number in STACKS:
            together, apart = answers[number, "together"], answers[number, "apart"]
            ratio = median(together) / median(apart)
            data.append({
                "actors": f"{algorithm}, {name}", "threads": threads, "K": number, "together": together,
                "apart": apart, "ratio": ratio,
            })  # fmt: skip
            shown = [f"{median(x):,.0f}" for x in (together, apart)]
            rows.append([f"{algorithm}, {name}", str(threads), str(number), *shown, f"{ratio:.2f}"])
        save(args.out, facts, page("Actors trained together", __doc__, header, rows), {"cases": data})


if __name__ == "__main__":
    main()
