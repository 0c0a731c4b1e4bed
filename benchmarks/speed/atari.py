"""Speed of Atari's Pong: environment steps (4 frames) per second of our actors and of ale-py's vector environment.

ale-py's `AtariVectorEnv` plays 16 games with random actions, on one thread and on one for each core. Our actors have as
many each, with random actions or with those of PPO's Nature CNN; there is one of them, or one for each core, in
processes as under cluster=processes. All games begin with no-ops and fire. ale-py's are not seeded one by one: for that
it would load the cartridge again. Medians over the rounds; everybody is measured in each round, in turn.

    python benchmarks/speed/atari.py [--seconds 4.0] [--rounds 7] [--out DIR]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import numpy as np
import torch
from common import OURS, Worker, alternate, arguments, machine, median, page, save, serve

from evorl.mdp.atari import Atari
from evorl.nets.policy import Net
from evorl.rl.actor import Player
from evorl.rl.ppo import PPO
from evorl.util.seed import Episodes

GAME, GAMES, STEPS = "pong", 16, 32
CORES = os.cpu_count() or 1


def vector_environment(threads: int) -> Callable[[], float]:
    """Return a function that takes steps in a bare vector environment, with random actions, and counts them."""
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv(GAME, GAMES, num_threads=threads, repeat_action_probability=0.25)
    env.reset(seed=np.arange(1, GAMES + 1))
    actions = np.random.default_rng(0).integers(env.single_action_space.n, size=(STEPS, GAMES))

    def steps() -> float:
        for row in actions:
            env.step(row)
        return float(actions.size)

    return steps


def actor(seed: int, decides: bool) -> Callable[[], float]:
    """Return a function that takes steps in one of our arenas and counts them; ``decides``: with PPO's network."""
    arena = Atari(game=GAME, noop_max=30, fire_reset=True).arena(GAMES, Episodes(seed))
    hyper = PPO(net=Net(hidden=(), activation="relu", shared=True))
    player = Player(arena, hyper.learner(arena.spec, 0, torch.device("cpu")))
    slots, draw = np.arange(GAMES), np.random.default_rng(seed)

    def steps() -> float:
        noise = torch.from_numpy(draw.gumbel(size=(STEPS, GAMES, 6)).astype(np.float32))
        actions = draw.integers(6, size=(STEPS, GAMES, 1))
        for step in range(STEPS):
            if decides:
                player.send(slots, player.decide(noise[step]))
            else:
                arena.send(slots, actions[step])
            player.recv()
        return float(actions.size)

    return steps


WORK: dict[str, Callable[[int], Callable[[], float]]] = {
    "vector": vector_environment,
    "random": partial(actor, decides=False),
    "network": partial(actor, decides=True),
}


def work(kind: str, number: str) -> None:
    torch.set_num_threads(1)
    serve(WORK[kind](int(number)), "ale-py", "torch")


def together(workers: list[Worker], seconds: float) -> float:
    """The sum of the rates of workers that run at the same time."""
    with ThreadPoolExecutor(len(workers)) as pool:
        return sum(pool.map(lambda worker: worker.rate(seconds), workers))


def ratios(rate: float, *others: float) -> list[str]:
    return [f"{rate / other:.2f}" for other in others]


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        return work(*sys.argv[2:])
    args = arguments(__doc__, seconds=4.0, rounds=7)
    facts = machine()
    counts = sorted({1, CORES})
    with ExitStack() as stack:

        def workers(kind: str, numbers: range) -> list[Worker]:
            return [stack.enter_context(Worker(OURS, "atari.py", "work", kind, str(number))) for number in numbers]

        every = {
            **{f"ale-py's vector environment, {n} threads": workers("vector", range(n, n + 1)) for n in counts},
            **{f"our actors, random actions, {n} processes": workers("random", range(n)) for n in counts},
            **{f"our actors, Nature CNN, {n} processes": workers("network", range(n)) for n in counts},
        }
        facts["versions"] = next(iter(every.values()))[0].versions
        contests = {name: lambda _, who=who: together(who, args.seconds) for name, who in every.items()}
        rates = alternate(contests, range(args.rounds))
    medians = {name: median(samples) for name, samples in rates.items()}
    single, *more = (medians[f"ale-py's vector environment, {n} threads"] for n in counts)
    best = max(single, *more) if more else single
    rows = [
        [
            name,
            f"{rate:,.0f}",
            f"{min(rates[name]):,.0f} to {max(rates[name]):,.0f}",
            f"{rate / single:.2f}",
            f"{rate / best:.2f}",
        ]
        for name, rate in medians.items()
    ]
    head = ["environment steps per second", "median", "range", "of ale-py on one thread", "of ale-py at its best"]
    save(args.out, facts, page("Atari's Pong", __doc__, head, rows), {"rates": rates})


if __name__ == "__main__":
    main()
