"""TD3 and SAC end to end on HalfCheetah-v5: environment steps per second, each with a gradient step.

Ours and Stable-Baselines3's alternate in one run, with the same network, minibatch and one gradient step for each
environment step; CleanRL's TD3, unchanged, is beside them where these are its own. We run as we come and, beside it,
with rl.compile=true. Each contestant runs with 1 and with 2 threads (--threads N: up to N), and its better median
counts. Start-up and the warm-up of the replay are left out.

    python benchmarks/speed/off_policy.py [--samples 5] [--seconds 4] [--out DIR]
"""

from __future__ import annotations

from typing import Any

from common import arguments
from ppo import Case, Peer, compare

CLEANRL_TD3 = {"CleanRL": Peer({"world": "HalfCheetah-v5"}, 1.25, ("cleanrl_td3.py",))}
"""Its network and minibatch are written into its program: 256-256 and 256."""


def case(name: str, algorithm: str, hidden: list[int], batch: int, aim: float, **more: Peer) -> Case:
    words = (
        f"mdp=halfcheetah rl={algorithm.lower()} rl.net.hidden={hidden} rl.batch={batch} rl.samples_per_step={batch} "
        "rl.warm_up=0 rl.normalize_inputs=false"
    ).replace(", ", ",")
    given = {"learning_starts": 32, "batch_size": batch, "train_freq": 1, "gradient_steps": 1, "buffer_size": 1_000_000}
    settings: dict[str, Any] = {"world": "HalfCheetah-v5", "algorithm": algorithm, "arguments": given, "hidden": hidden}
    return Case(name, words, {"SB3, the same settings": Peer(settings, aim), **more})


CASES = [
    case("TD3, 256-256, batch 256", "TD3", [256, 256], 256, 1.25, **CLEANRL_TD3),
    case("TD3, 64-64, batch 100", "TD3", [64, 64], 100, 2.5),
    case("SAC, 256-256, batch 256", "SAC", [256, 256], 256, 1.5),
]


def main() -> None:
    args = arguments(__doc__, samples=5, seconds=4.0, threads=2)
    compare(CASES, "TD3 and SAC, environment steps per second", __doc__, args)


if __name__ == "__main__":
    main()
