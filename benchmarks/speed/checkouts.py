"""Environment steps per second of complete trainings in two checkouts of evorl, this one and an older one.

A worker of each checkout learns from the same words, and they are asked in turn, so that a drift of the machine hits
both alike. A number is the median of the samples; the last column is this checkout's rate as a share of the other's.

    python benchmarks/speed/checkouts.py BEFORE [--samples 7] [--seconds 2] [--out DIR]

Whether the numbers that they learn are the same is told by ``scripts/compare_checkouts.py``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import OURS, ROOT, Worker, alternate, machine, median, page, save

CASES = {
    "PPO, CartPole": "mdp=cartpole rl=ppo",
    "PPO, Pong": "mdp=pong rl=ppo",
    "PPO, Pong of coroutines": "mdp=pong mdp.delay_ms=[0,0.001] rl=ppo rl.slots=64",
    "V-trace, CartPole": "mdp=cartpole rl=vtrace",
    "TD3, HalfCheetah": "mdp=halfcheetah rl=td3 rl.warm_up=1000",
    "SAC, Pendulum": "mdp=pendulum rl=sac rl.warm_up=1000",
    "DQN, CartPole": "mdp=cartpole rl=dqn rl.warm_up=1000",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="folder of the other checkout")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path, help="folder for the results, else they are only printed")
    args = parser.parse_args()
    facts, data, rows = machine(), {}, []
    for name, words in CASES.items():
        with (
            Worker(OURS, "ours.py", *words.split(), path=args.before.resolve()) as before,
            Worker(OURS, "ours.py", *words.split(), path=ROOT) as after,
        ):
            asked = {
                "before": lambda _, worker=before: worker.rate(args.seconds),
                "after": lambda _, worker=after: worker.rate(args.seconds),
            }
            data[name] = samples = alternate(asked, range(args.samples))
        old, new = median(samples["before"]), median(samples["after"])
        rows.append([name, f"{old:,.0f}", f"{new:,.0f}", f"{new / old:.0%}"])
        header = ["training", "before, steps/s", "after, steps/s", "after / before"]
        save(args.out, facts, page("Two checkouts", __doc__, header, rows), {"steps per second": data})


if __name__ == "__main__":
    main()
