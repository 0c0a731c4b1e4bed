"""TD3, SAC and DQN end to end: environment steps per second, each with a gradient step.

TD3 and SAC play HalfCheetah-v5, DQN plays CartPole-v1 and, with the Nature CNN, a world of pictures of Atari's shape
that costs nothing to step (pictures.py); the bare network beside it does a gradient step's convolutions and products
and nothing else (bare_nature.py). Ours and Stable-Baselines3's alternate in one run, with the same network and
minibatch, and as many gradient steps after as many environment steps: 32 of TD3 and SAC, 4 of DQN. CleanRL's TD3, one
gradient step after each environment step, is beside them where network and minibatch are its own. We run as we come
and, beside it, with rl.compile=true where it is for such networks. Each contestant runs with 1 and with 2 threads
(--threads N: up to N), and its better median counts. Start-up and the warm-up of the replay are left out.

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
    arguments = {
        "learning_starts": 32,
        "batch_size": batch,
        "train_freq": 32,  # rl.horizon of ours; one step and one gradient step in turn is slower
        "gradient_steps": 32,
        "buffer_size": 1_000_000,
    }
    settings: dict[str, Any] = {
        "world": "HalfCheetah-v5",
        "algorithm": algorithm,
        "arguments": arguments,
        "hidden": hidden,
    }
    return Case(name, words, {"SB3, the same settings": Peer(settings, aim), **more})


BARE = {"the bare network": Peer({"batch": 32, "actions": 6}, 0.85, ("bare_nature.py",))}


def value_case(
    name: str, world: str, ours: str, policy: str, hidden: list[int], batch: int, capacity: int, **more: Peer
) -> Case:
    """DQN, each 4 steps of the world followed by 4 gradient steps."""
    words = (
        f"{ours} rl=dqn rl.slots=1 rl.horizon=4 rl.rounds=16 rl.net.hidden={hidden or [512]} rl.batch={batch} "
        f"rl.samples_per_step={batch} rl.capacity={capacity} rl.warm_up=0 rl.normalize_inputs=false rl.n_step=1 "
        "rl.double=false rl.lr=1e-4 rl.target_every=10_000 rl.tau=1 rl.max_grad_norm=10 rl.epsilon=0.05"
    ).replace(", ", ",")
    arguments = {
        "learning_starts": 32, "batch_size": batch, "train_freq": 4, "gradient_steps": 4, "buffer_size": capacity,
        "learning_rate": 1e-4, "target_update_interval": 10_000, "exploration_initial_eps": 0.05, "policy": policy,
    }  # fmt: skip
    settings: dict[str, Any] = {"world": world, "algorithm": "DQN", "arguments": arguments, "hidden": hidden}
    return Case(name, words, {"SB3, the same settings": Peer(settings, 1.5), **more}, compiles=bool(hidden))


CASES = [
    case("TD3, 256-256, batch 256", "TD3", [256, 256], 256, 1.25, **CLEANRL_TD3),
    case("TD3, 64-64, batch 100", "TD3", [64, 64], 100, 2.5),
    case("SAC, 256-256, batch 256", "SAC", [256, 256], 256, 1.5),
    value_case("DQN, 64-64, batch 32", "CartPole-v1", "mdp=cartpole", "MlpPolicy", [64, 64], 32, 100_000),
    value_case(
        *(
            "DQN, Nature CNN, batch 32",
            "pictures:Pictures-v0",
            "mdp=gymnasium mdp.id=pictures:Pictures-v0 trust=[pictures]",
        ),
        *("CnnPolicy", [], 32, 10_000),
        **BARE,
    ),
]


def main() -> None:
    args = arguments(__doc__, samples=5, seconds=4.0, threads=2)
    compare(CASES, "TD3, SAC and DQN, environment steps per second", __doc__, args)


if __name__ == "__main__":
    main()
