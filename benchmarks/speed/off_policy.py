"""TD3 and SAC end to end on HalfCheetah-v5: environment steps per second, each with a gradient step.

Ours and Stable-Baselines3's alternate in one run, with the same network, minibatch and one gradient step for each
environment step. We run as we come and, beside it, with rl.compile=true. Each contestant runs with 1 and with 2 threads
(--threads N: up to N), and its better median counts. Start-up and the warm-up of the replay are left out.

    python benchmarks/speed/off_policy.py [--samples 5] [--seconds 4] [--out DIR]
"""

from __future__ import annotations

from typing import Any

from common import arguments, machine, page, save
from ppo import Case, Peer, measure, rows, summary


def case(name: str, algorithm: str, hidden: list[int], batch: int, aim: float) -> Case:
    words = (
        f"mdp=halfcheetah rl={algorithm.lower()} rl.net.hidden={hidden} rl.batch={batch} rl.samples_per_step={batch} "
        "rl.warm_up=0 rl.normalize_inputs=false"
    ).replace(", ", ",")
    given = {"learning_starts": 32, "batch_size": batch, "train_freq": 1, "gradient_steps": 1, "buffer_size": 1_000_000}
    settings: dict[str, Any] = {"world": "HalfCheetah-v5", "algorithm": algorithm, "arguments": given, "hidden": hidden}
    return Case(name, words, {"SB3, the same settings": Peer(settings, aim)})


CASES = [
    case("TD3, 256-256, batch 256", "TD3", [256, 256], 256, 1.25),
    case("TD3, 64-64, batch 100", "TD3", [64, 64], 100, 2.5),
    case("SAC, 256-256, batch 256", "SAC", [256, 256], 256, 1.5),
]


def main() -> None:
    args = arguments(__doc__, samples=5, seconds=4.0, threads=2)
    facts, results, lines = machine(), {}, []
    for one in CASES:
        print(one.name, flush=True)
        found, facts["peers"] = measure(one, args.threads, args.samples, args.seconds)
        results[one.name] = summary(one, found)
        lines += rows(one, results[one.name])
        head = ["environment steps per second", *(f"threads: {count + 1}" for count in range(args.threads))]
        head += ["range at the better", "evorl is faster by", "compiled by", "aim"]
        save(
            args.out, facts, page("TD3 and SAC, environment steps per second", __doc__, head, lines), {"cases": results}
        )


if __name__ == "__main__":
    main()
