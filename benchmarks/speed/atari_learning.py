"""Atari's Pong from pictures of 84 x 84 with the Nature CNN, end to end: environment steps (4 frames) per second.

PPO has CleanRL's settings: 8 games, 128 steps, 4 passes over minibatches of 256. V-trace learns once from each step
(without a replay: IMPALA) or from as many replayed ones beside it (as it comes), with 16 games and 16 rollouts of 32
steps in a gradient step, while the games play on. Sample Factory's APPO has the same games, rollouts and single pass;
its loss is PPO's, since its V-trace needs a recurrent core. CleanRL's ppo_atari is unchanged. Each is measured with
every setting of its threads, processes and workers that is shown, and the best median counts; the samples of all
alternate. Start-up and the first update are left out. Last come the shares of time that an actor of V-trace waits for
the learner and that the learner works, with pictures of 42 x 42, where it has time to spare.

    python benchmarks/speed/atari_learning.py [--samples 5] [--seconds 6] [--out DIR]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from common import OURS, PEERS, SAMPLE_FACTORY, Worker, alternate, arguments, machine, median, page, save, serve
from ours import experiment

GAME = "mdp=atari_noframeskip mdp.game=pong"
PPO = (
    f"{GAME} rl=ppo rl.horizon=128 rl.minibatch=256 rl.passes=4 rl.lr=2.5e-4 rl.clip=0.1 rl.value_clip=0.1 "
    "rl.critic_coef=0.5 rl.entropy_coef=0.01 rl.net.hidden=[] rl.net.activation=relu rl.net.shared=true"
)
VTRACE = (
    f"{GAME} rl=vtrace rl.horizon=32 rl.batch=16 rl.fill_in=16 rl.net.hidden=[] rl.net.activation=relu "
    "rl.net.shared=true"
)
QUEUE = "rl.sampling=queue"
APART = "cluster=processes cluster.workers"
WHERE = {
    "one process, 1 thread": "rl.threads=1",
    "one process, 2 threads": "rl.threads=2",
    "1 worker": f"{APART}=1 rl.members=1",
    "1 worker, 2 threads": f"{APART}=1 rl.members=1 rl.threads=2",
    "2 workers": f"{APART}=2 rl.members=2",
}
"""Where ours runs, in words of its command."""


class Contestant(NamedTuple):
    settings: dict[str, Callable[[], Worker]]
    aims: dict[str, float]
    """How many times as fast as others it is to be."""


def ours(words: str, games: int, *places: str, **aims: float) -> Contestant:
    made = {}
    for place in places:
        slots = games // (2 if place == "2 workers" else 1)
        made[place] = partial(Worker, OURS, "ours.py", *words.split(), *WHERE[place].split(), f"rl.slots={slots}")
    return Contestant(made, aims)


def cleanrl(threads: int) -> Worker:
    return Worker(PEERS, "cleanrl_ppo_atari.py", json.dumps({"world": "PongNoFrameskip-v4", "threads": threads}))


def sample_factory(workers: int) -> Worker:
    settings = {"world": "atari_pong", "rollouts": 16, "horizon": 32, "envs": 16, "workers": workers}
    return Worker(PEERS, "sample_factory_appo.py", json.dumps(settings), path=SAMPLE_FACTORY)


APART_PLACES = ("1 worker", "1 worker, 2 threads", "2 workers")
CONTESTANTS = {
    "evorl, PPO": ours(PPO, 8, "one process, 1 thread", "one process, 2 threads", "2 workers", CleanRL=1.5),
    "evorl, V-trace": ours(f"{VTRACE} {QUEUE}", 16, *APART_PLACES, **{"CleanRL": 2.0, "Sample Factory": 1.0}),
    "evorl, V-trace with half replay": ours(VTRACE, 16, *APART_PLACES, **{"CleanRL": 2.0, "Sample Factory": 1.0}),
    "CleanRL": Contestant({f"{n} threads": partial(cleanrl, n) for n in (1, 2)}, {}),
    "Sample Factory": Contestant({f"{n} workers": partial(sample_factory, n) for n in (1, 2)}, {}),
}
WAITING = f"{VTRACE} {QUEUE} mdp.size=42 {APART}=1 rl.members=1 rl.slots=16".split()
WAITS = {"an actor waits": "speed/actor_wait", "the learner works": "speed/update_seconds"}
AIMS = {"an actor waits": "(aim: less than 5 %)", "the learner works": ""}


def spend(metric: str) -> None:
    """Be a worker that adds up the seconds of a metric."""
    from evorl.training.train import Run

    run = Run(experiment(WAITING))
    serve(lambda: run.iterate().metrics[metric], settle=3)
    run.close()


def ratios(name: str, best: dict[str, float]) -> str:
    aims = CONTESTANTS[name].aims.items()
    return ", ".join(f"{best[name] / best[other]:.2f} of {other}'s (aim {aim:g})" for other, aim in aims)


def main() -> None:
    if sys.argv[1:2] == ["spend"]:
        return spend(sys.argv[2])
    args = arguments(__doc__, samples=5, seconds=6.0)
    facts = machine()
    with ExitStack() as stack:
        workers = {
            (name, setting): stack.enter_context(make())
            for name, contestant in CONTESTANTS.items()
            for setting, make in contestant.settings.items()
        }
        facts |= {name: workers[name, setting].versions for name, setting in workers if not name.startswith("evorl")}
        rates = alternate({key: lambda _, w=w: w.rate(args.seconds) for key, w in workers.items()}, range(args.samples))
    medians = {key: median(samples) for key, samples in rates.items()}
    best = {name: max(medians[key] for key in medians if key[0] == name) for name in CONTESTANTS}
    with ExitStack() as stack:
        spent = {
            name: stack.enter_context(Worker(OURS, "atari_learning.py", "spend", metric))
            for name, metric in WAITS.items()
        }
        contests = {name: lambda _, w=w: w.rate(args.seconds) for name, w in spent.items()}
        shares = alternate(contests, range(args.samples))
    lines = [
        [
            f"{name}: {setting}",
            f"{medians[name, setting]:,.0f}",
            f"{min(samples):,.0f} to {max(samples):,.0f}",
            ratios(name, best) if medians[name, setting] == best[name] else "",
        ]
        for (name, setting), samples in rates.items()
    ]
    for name, x in shares.items():
        lines.append([f"share of time that {name}", f"{median(x):.1%}", f"{min(x):.1%} to {max(x):.1%}", AIMS[name]])
    head = ["environment steps per second", "median", "range", "the best setting is"]
    data = {"rates": {": ".join(key): samples for key, samples in rates.items()}, "shares": shares}
    save(args.out, facts, page("Learning Atari's Pong", __doc__, head, lines), data)


if __name__ == "__main__":
    main()
