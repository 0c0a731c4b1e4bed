"""Gradient steps of one learner with one and with two threads, and of two learners with a thread each (`rl.learners`).

With the Nature CNN on 4 x 84 x 84 bytes, and with two layers of 64. One batch is collected; then it is learned from
again and again. So a number is gradient steps per second of learning alone: drawing minibatches, sending shares, steps
and sums. It is the median of the samples; the three take turns.

    python benchmarks/speed/learners.py [--samples 5] [--seconds 5] [--out DIR]
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from common import OURS, Worker, alternate, arguments, machine, median, page, save, serve
from ours import experiment

PICTURES = "mdp=gymnasium mdp.id=pictures:Pictures-v0 trust=[pictures] rl.net.hidden=[512] rl.net.activation=relu"
CASES = {
    "V-trace, Nature CNN, 32 rollouts of 20": f"{PICTURES} rl=vtrace rl.asynchronous=false rl.slots=32 rl.fill_in=32",
    "PPO, Nature CNN, minibatch 256": f"{PICTURES} rl=ppo rl.slots=8 rl.horizon=64 rl.passes=1",
    "PPO, 64-64, minibatch 2048": "mdp=pong rl=ppo rl.slots=64 rl.minibatch=2048 rl.passes=2",
}
SETTINGS = {(1, 1): "1 learner, 1 thread", (1, 2): "1 learner, 2 threads", (2, 1): "2 learners, 1 thread each"}


def learn(words: list[str]) -> None:
    """A worker that learns from one batch."""
    from evorl.training.train import Run

    run = Run(experiment(words))
    batch = run.source.take(run.learner, 0, 0).update_input
    serve(lambda: run.learner.update(batch, 0, 0).steps)
    run.close()


def main() -> None:
    args = arguments(__doc__, samples=5, seconds=5.0)
    facts, data, rows = machine(), {}, []
    for case, words in CASES.items():
        with ExitStack() as stack:
            workers = {
                name: stack.enter_context(
                    Worker(OURS, "learners.py", "learn", *words.split(), f"rl.learners={n}", f"rl.threads={threads}")
                )
                for (n, threads), name in SETTINGS.items()
            }
            contests = {name: lambda _, worker=worker: worker.rate(args.seconds) for name, worker in workers.items()}
            data[case] = samples = alternate(contests, range(args.samples))
        single, threads, learners = (median(samples[name]) for name in SETTINGS.values())
        rows.append([case, *(f"{x:,.1f}" for x in (single, threads, learners)),
                     f"{threads / single:.2f}", f"{learners / single:.2f}", f"{learners / threads:.2f}"])  # fmt: skip
        header = ["case", *SETTINGS.values(), "2 threads / 1", "2 learners / 1", "2 learners / 2 threads"]
        save(args.out, facts, page("Learners", __doc__, header, rows), {"gradient steps per second": data})


if __name__ == "__main__":
    if sys.argv[1:2] == ["learn"]:
        learn(sys.argv[2:])
    else:
        main()
