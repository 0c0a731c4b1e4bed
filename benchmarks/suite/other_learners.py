"""A3C, REINFORCE, DDPG, R2D2 and IMPACT on classic worlds, with nothing beside them.

DDPG begins to learn after 1,000 random steps on Pendulum, as its page does; all else is as it comes. A3C computes its
gradients in one process here, and R2D2 sees all of CartPole's state, so the table tells that they learn, and neither
what asynchrony nor what a memory gains.
"""

from __future__ import annotations

from benchmarks.suite.arms import Arm
from benchmarks.suite.baselines import table


def alone(algorithm: str, world: str, steps: int, *words: str) -> Arm:
    """A learner with no other program beside it."""
    return Arm(algorithm, world, steps, (f"rl={algorithm}", *words), None)


CI = (
    alone("a3c", "cartpole", 100_000),
    alone("reinforce", "cartpole", 100_000),
    alone("impact", "cartpole", 50_000),
    alone("ddpg", "pendulum", 10_000, "rl.warm_up=1_000"),
    alone("r2d2", "cartpole", 50_000),
)
NIGHT = (
    alone("a3c", "lunarlander", 200_000),
    alone("reinforce", "lunarlander", 200_000),
    alone("impact", "lunarlander", 200_000),
    alone("ddpg", "lunarlandercontinuous", 100_000),
    alone("r2d2", "lunarlander", 200_000),
)

TABLE = table(
    "Other learners", "A3C, REINFORCE, DDPG, R2D2 and IMPACT", __doc__, CI, NIGHT, (0.5, 8.0), "other_",
    claim="they learn; no number is published for these worlds and steps",
)  # fmt: skip
