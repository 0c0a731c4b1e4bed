"""How near we are to what the machine must do: the world's steps, the matrix products, the work on single numbers.

For our Pong defaults, and for CartPole-v1 with Stable-Baselines3's default PPO settings: the time of one batch's
steps with actions drawn before; of the products of acting on it; of the forward and backward products of its update,
one torch.mm each, actor and critic apart; of what an update does to single numbers and cannot leave out: rows gathered,
hidden layers' activations and their gradients, biases' gradients, a step of Adam; of copying the batch once in memory.
All of it into memory that is there, and nothing in between. Beside them the time that our training spends on collecting
and on learning, and the floors' share of it.

    python benchmarks/speed/floor.py [--samples 5] [--out DIR]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import torch
from common import alternate, arguments, machine, median, page, save
from ours import experiment
from ppo import OUR_PONG, SB3_DEFAULTS

from evorl.mdp.core import Arena, Box, Spec, heads
from evorl.nets.distributions import outputs
from evorl.rl.batch import PolicyGradientBatch
from evorl.training.train import Run
from evorl.util.seed import Episodes

CASES = {"Pong, our defaults": OUR_PONG, "CartPole-v1, SB3's defaults": f"mdp=cartpole {SB3_DEFAULTS}"}
Work = Callable[[], None]
LEAST_S = 0.3


def seconds(work: Work) -> float:
    """Of one call, the mean over as many as fit in LEAST_S."""
    calls, began = 0, time.perf_counter()
    while not calls or time.perf_counter() - began < LEAST_S:
        work()
        calls += 1
    return (time.perf_counter() - began) / calls


def stepping(arena: Arena, steps: int) -> Work:
    """All slots through ``steps`` decisions."""
    space, rng = arena.spec.action, np.random.default_rng(0)
    actions: np.ndarray
    if isinstance(space, Box):
        actions = rng.uniform(-1, 1, (64, arena.slots, len(space.low))).astype(np.float32)
    else:
        actions = rng.integers(0, heads(space), (64, arena.slots, len(heads(space))))

    def work() -> None:
        for step in range(steps):
            arena.send(arena.recv().slots, actions[step % 64])

    return work


def layers(rl: Any, spec: Spec) -> list[tuple[int, int, bool]]:
    """(inputs, outputs, first) of every linear map of actor and critic; the first ones' inputs need no gradient."""
    body = list(pairwise((sum(prod(entry.shape) for entry in spec.inputs), *rl.net.hidden)))
    last = body[-1][1]
    bodies = [(i, o, n == 0) for n, (i, o) in enumerate(body)] * (1 if rl.net.shared else 2)
    return [*bodies, (last, outputs(spec.action, rl.net.std == "state"), False), (last, len(spec.rewards), False)]


def products(rows: int, maps: list[tuple[int, int, bool]], backward: bool) -> Work:
    """The products of one pass of ``rows`` rows, written into memory that is there."""
    todo = []
    for inputs, width, first in maps:
        x, w, y = torch.randn(rows, inputs), torch.randn(inputs, width), torch.randn(rows, width)
        todo.append((x, w, torch.empty_like(y)))
        if backward:
            todo.append((x.t(), y, torch.empty_like(w)))
        if backward and not first:
            todo.append((y, w.t(), torch.empty_like(x)))

    def work() -> None:
        for a, b, out in todo:
            torch.mm(a, b, out=out)

    return work


def single(rows: int, batch: int, rl: Any, maps: list[tuple[int, int, bool]]) -> Work:
    """What one gradient step of ``rows`` of the ``batch`` rows does beside its products, without losses."""
    forward = {"tanh": torch.tanh_, "relu": torch.relu_}[rl.net.activation]
    ops = torch.ops.aten
    backward = {
        "tanh": lambda g, y: ops.tanh_backward.grad_input(g, y, grad_input=g),
        "relu": lambda g, y: ops.threshold_backward.grad_input(g, y, 0, grad_input=g),
    }[rl.net.activation]
    # inputs; action, log pi, value, advantage, target
    columns = [torch.randn(batch, maps[0][0]), *torch.randn(5, batch)]
    order = torch.randperm(batch)[:rows]
    taken = [torch.empty(rows, *x.shape[1:]) for x in columns]
    hidden = [torch.randn(2, rows, width) for _, width, _ in maps[:-2]]  # results and their gradients
    heads_ = [torch.randn(rows, width) for _, width, _ in maps[-2:]]
    bias = [torch.empty(width) for _, width, _ in maps]
    theta, m, v, g, root = torch.rand(5, sum(inputs * width + width for inputs, width, _ in maps))

    def work() -> None:
        for x, out in zip(columns, taken, strict=True):
            torch.index_select(x, 0, order, out=out)
        for y, gradient in hidden:
            forward(y)
            backward(gradient, y)
        for gradient, out in zip([*(layer[1] for layer in hidden), *heads_], bias, strict=True):
            torch.sum(gradient, 0, out=out)
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        theta.addcdiv_(m, torch.sqrt(v, out=root), value=-1e-9)

    return work


def copying(data: torch.Tensor) -> Work:
    to = torch.empty_like(data)
    return lambda: (to.copy_(data), None)[1]


def measure(words: str, samples: int) -> dict[str, list[float]]:
    """Seconds for one batch: of each floor, and of our collecting and learning."""
    whole = experiment(words.split())
    rl: Any = whole.rl
    run = Run(whole)  # sets the threads
    slots = rl.members * rl.slots
    arena = whole.mdp.arena(slots, Episodes(0))
    spec, batch = arena.spec, PolicyGradientBatch.empty(arena.spec, rl.horizon, slots, rl.net.lstm)
    size = sum(x.nbytes for x in (*batch.inputs, batch.action, batch.log_prob, batch.value, batch.reward, batch.done))
    act = products(slots, layers(rl, spec), backward=False)
    learn = products(rl.minibatch, layers(rl, spec), backward=True)
    rest = single(rl.minibatch, rl.horizon * slots, rl, layers(rl, spec))
    steps, updates = rl.horizon, rl.passes * rl.horizon * slots / rl.minibatch
    spent: dict[str, list[float]] = {"collecting": [], "learning": []}

    def train(_: int) -> float:
        numbers = run.iterate().metrics
        spent["collecting"].append(numbers["speed/sample_seconds"])
        spent["learning"].append(numbers["speed/update_seconds"])
        return spent["collecting"][-1] + spent["learning"][-1]

    try:
        train(0)  # warms up
        spent = {name: [] for name in spent}
        floors = alternate({
            "world": lambda _: seconds(stepping(arena, steps)),
            "acting": lambda _: steps * seconds(act),
            "update": lambda _: updates * seconds(learn),
            "single numbers": lambda _: updates * seconds(rest),
            "copy": lambda _: seconds(copying(torch.zeros(size, dtype=torch.uint8))),
            "training": train,
        }, range(samples))  # fmt: skip
    finally:
        arena.close()
        run.close()
    return floors | spent | {"steps": [float(steps * slots)], "bytes": [float(size)]}


def rows(name: str, by_key: dict[str, list[float]]) -> list[list[str]]:
    middle = {key: median(samples) for key, samples in by_key.items()}
    collect = middle["world"] + middle["acting"]
    lines = [
        ("steps of the world", middle["world"], middle["collecting"]),
        ("products of acting", middle["acting"], middle["collecting"]),
        ("both", collect, middle["collecting"]),
        ("products of the update", middle["update"], middle["learning"]),
        ("single numbers of the update", middle["single numbers"], middle["learning"]),
        ("all of these", collect + middle["update"] + middle["single numbers"], middle["training"]),
        ("one copy of the batch", middle["copy"], middle["training"]),
    ]
    return [
        [f"{name}: {what}", f"{1e3 * floor:.3f}", f"{1e3 * ours:.2f}", f"{100 * floor / ours:.1f} %",
         f"{middle['steps'] / floor:,.0f}", f"{middle['steps'] / ours:,.0f}"]
        for what, floor, ours in lines
    ]  # fmt: skip


def bandwidth() -> float:
    """Bytes per second that a large copy moves, read and written counted once each."""
    data = torch.zeros(1 << 28, dtype=torch.uint8)
    return 2 * data.nbytes / seconds(copying(data))


def main() -> None:
    args = arguments(__doc__, samples=5)
    facts, results, lines = machine(), {}, []
    head = ["one batch", "floor, ms", "ours, ms", "share", "floor, steps/s", "ours, steps/s"]
    for name, words in CASES.items():
        print(name, flush=True)
        results[name] = measure(words, args.samples)
        lines += rows(name, results[name])
        facts["copy of 256 MiB"] = f"{bandwidth() / 1e9:.1f} GB/s read and written"
        save(args.out, facts, page("What the machine must do", __doc__, head, lines), {"cases": results})


if __name__ == "__main__":
    main()
