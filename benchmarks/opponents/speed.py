"""Steps per second of a run against 16 and 64 different opponents in a batch, beside one against the rule player.

`evorl.run mdp=pong` as it is (PPO, 256 games), alone and with `opponents=past`, all of whose games are against the
pool: policies of the learner's form with random weights, each as likely. A number is the median of the samples, in
which all take turns. Memory is that of the whole process (player and learner) after the last sample.

    python benchmarks/opponents/speed.py [--samples 7] [--seconds 8] [--out benchmarks/opponents/results]
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.speed.common import OURS, Worker, alternate, arguments, machine, median, page, save, serve

HERE = Path(__file__).resolve()
POOLS = (16, 64)
AIMS = {16: 0.8, 64: 0.7}
SPREAD = 0.4  # of what is added to initial weights, under which all actions would be equally likely
NEVER = 10**12  # environment steps between snapshots: the pool stays as it is
GAME = ("mdp=pong", "rl=ppo", "device=cpu")


def words(opponents: int) -> list[str]:
    """Of a run against so many opponents; 0: against the rule player."""
    pool = ("opponents=past", "opponents.latest=0", f"opponents.capacity={opponents}", f"opponents.snapshot={NEVER}")
    return [*GAME, *(pool if opponents else ())]


def learn(opponents: int) -> None:
    """A worker that learns against so many opponents."""
    import torch

    from evorl.cli.config import experiment_of_words
    from evorl.opponents.sampler import OpposedLockstep
    from evorl.training.train import Run

    run = Run(experiment_of_words(words(opponents)))
    if opponents:
        assert isinstance(run.source, OpposedLockstep)
        for number in range(opponents):
            theta, *rest = [x.clone() for x in run.learner.weights()]
            theta += SPREAD * torch.randn(len(theta), generator=torch.Generator().manual_seed(number))
            run.source.pool.add_if_due([theta, *rest], number * NEVER, 0)

    def update() -> float:
        before = run.steps
        run.iterate()
        return run.steps - before

    serve(update)
    run.close()


def main() -> None:
    args = arguments(__doc__, samples=7, seconds=8.0)
    facts: dict[str, Any] = machine()
    with ExitStack() as stack:
        workers = {
            n: stack.enter_context(Worker(OURS, str(HERE), "learn", str(n), path=HERE.parents[2])) for n in (0, *POOLS)
        }
        contestants = {n: lambda _, worker=worker: worker.rate(args.seconds) for n, worker in workers.items()}
        rates = alternate(contestants, range(args.samples))
        memory = {n: worker.resident for n, worker in workers.items()}
    rows = []
    for n, samples in rates.items():
        ratio = median(samples) / median(rates[0])
        aim = f"{AIMS[n]:.0%}" if n else ""
        name = str(n) if n else "the rule player"
        rows.append([name, f"{median(samples):,.0f}", f"{ratio:.0%}", aim, f"{memory[n] / 1e6:,.0f}"])
    header = ["opponents in a batch", "steps per second", "of those against the rule player", "aim", "memory, MB"]
    data = {"steps per second": rates, "bytes of a process": memory}
    save(args.out, facts, page("Opponents in a batch", __doc__, header, rows), data)


if __name__ == "__main__":
    if sys.argv[1:2] == ["learn"]:
        learn(int(sys.argv[2]))
    else:
        main()
