"""The numbers that rl-baselines3-zoo publishes of its trained agents, one run each.

Source: benchmark.md of https://github.com/DLR-RM/rl-baselines3-zoo at commit 0088472. They are the mean return and its
deviation over episodes of the deterministic policy, and the environment steps of the training.
"""

from __future__ import annotations

PUBLISHED: dict[tuple[str, str], tuple[float, float, str]] = {
    ("ppo", "CartPole-v1"): (500.0, 0.0, "100k"),
    ("a2c", "CartPole-v1"): (500.0, 0.0, "500k"),
    ("dqn", "CartPole-v1"): (500.0, 0.0, "50k"),
    ("ars", "CartPole-v1"): (500.0, 0.0, "50k"),
    ("ppo", "Acrobot-v1"): (-73.506, 18.201, "1M"),
    ("a2c", "Acrobot-v1"): (-83.353, 17.213, "500k"),
    ("dqn", "Acrobot-v1"): (-76.639, 11.752, "100k"),
    ("ppo", "Pendulum-v1"): (-172.225, 104.159, "100k"),
    ("sac", "Pendulum-v1"): (-156.995, 88.714, "20k"),
    ("td3", "Pendulum-v1"): (-151.855, 90.227, "20k"),
    ("ppo", "LunarLander-v3"): (242.119, 31.823, "1M"),
    ("a2c", "LunarLander-v3"): (155.751, 80.419, "200k"),
    ("dqn", "LunarLander-v3"): (154.382, 79.241, "100k"),
    ("ppo", "LunarLanderContinuous-v3"): (270.863, 32.072, "1M"),
    ("sac", "LunarLanderContinuous-v3"): (260.390, 65.467, "500k"),
    ("td3", "LunarLanderContinuous-v3"): (207.451, 67.562, "300k"),
    ("a2c", "HalfCheetah-v5"): (3041.174, 157.265, "1M"),
    ("ppo", "HalfCheetah-v5"): (5819.099, 663.530, "1M"),
    ("sac", "HalfCheetah-v5"): (9535.451, 100.470, "1M"),
    ("td3", "HalfCheetah-v5"): (9655.666, 969.916, "1M"),
    ("ppo", "Hopper-v5"): (2410.435, 10.026, "1M"),
    ("sac", "Hopper-v5"): (2325.547, 1129.676, "1M"),
    ("td3", "Hopper-v5"): (3606.390, 4.027, "1M"),
    ("ppo", "Swimmer-v5"): (281.561, 9.671, "1M"),
    ("a2c", "Swimmer-v5"): (200.627, 2.544, "1M"),
    ("ars", "Swimmer-v5"): (355.267, 12.796, "2M"),
}
"""By algorithm and today's id; the zoo's are LunarLander-v2 and MuJoCo's version 3."""


def published(algorithm: str | None, world: str | None) -> str:
    """A number in words; ``-`` where none is published."""
    entry = PUBLISHED.get((algorithm or "", world or ""))
    return "-" if entry is None else f"{entry[0]:.0f} ± {entry[1]:.0f} ({entry[2]})"
