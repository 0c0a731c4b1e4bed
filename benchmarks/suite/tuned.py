"""Pairs of world and algorithm with tuned settings (conf/tuned) that no other table trains.

With profile=ci the budgets are small, and each pair has one seed: the table shows the beginnings of learning and keeps
a policy of each pair, and its returns are no measure of a learner. An evaluation has 10 episodes then, and 3 on the
worlds of MuJoCo. TD3 plays its first 1,000 steps at random, on Swimmer the first 10,000. The runs shared a busy
machine, so their seconds say little.

profile=night has three seeds, longer runs and 20 episodes. The pairs that other tables have with that profile are not
in it. Those of Atari are in the table `atari`.
"""

from __future__ import annotations

from benchmarks.suite.arms import Arm, alone
from benchmarks.suite.baselines import table

MUJOCO = ("halfcheetah", "hopper", "walker2d", "ant", "humanoid", "swimmer")
CI_SEEDS, NIGHT_SEEDS = (0,), (0, 1, 2)


def small(algorithm: str, world: str, steps: int) -> Arm:
    """An arm of profile=ci."""
    return alone(algorithm, world, steps)._replace(seeds=CI_SEEDS, episodes=3 if world in MUJOCO else 10)


def large(algorithm: str, world: str, steps: int) -> Arm:
    """An arm of profile=night."""
    return alone(algorithm, world, steps)._replace(seeds=NIGHT_SEEDS)


CI = (
    small("vtrace", "cartpole", 100_000),
    small("vtrace", "pong", 4_000_000),
    small("ppo", "duel", 1_000_000),
    small("vtrace", "duel", 1_000_000),
    small("ppo", "hopper", 200_000),
    small("ppo", "walker2d", 200_000),
    small("ppo", "halfcheetah", 200_000),
    small("ppo", "ant", 200_000),
    small("ppo", "humanoid", 100_000),
    small("vtrace", "halfcheetah", 200_000),
    small("td3", "swimmer", 30_000),
    small("td3", "hopper", 20_000),
    small("td3", "walker2d", 20_000),
    small("td3", "humanoid", 15_000),
)
NIGHT = (
    large("vtrace", "cartpole", 100_000),
    large("vtrace", "pong", 52_000_000),
    large("vtrace", "duel", 2_000_000),
    large("ppo", "duel", 2_000_000),
    large("ppo", "walker2d", 1_000_000),
    large("ppo", "ant", 1_000_000),
    large("ppo", "humanoid", 1_000_000),
    large("vtrace", "halfcheetah", 1_000_000),
    large("td3", "swimmer", 300_000),
    large("td3", "walker2d", 100_000),
    large("td3", "humanoid", 100_000),
)

TABLE = table(
    "Tuned pairs", "pairs of conf/tuned that no other table trains", __doc__, CI, NIGHT, (0.5, 11.0), "tuned_",
    claim="none of the returns: with profile=ci they are beginnings, of one run for each pair",
)  # fmt: skip
