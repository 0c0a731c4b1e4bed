"""A3C, REINFORCE, IMPACT and R2D2 on CartPole and DDPG on Pendulum, with nothing beside them.

All have the settings that they come with. A3C computes its gradients in one process here, so the table tells that it
learns, and not what asynchrony gains.
"""

from __future__ import annotations

from benchmarks.suite.arms import alone
from benchmarks.suite.baselines import table

CI = (
    alone("a3c", "cartpole", 100_000),
    alone("reinforce", "cartpole", 100_000),
    alone("impact", "cartpole", 50_000),
    alone("r2d2", "cartpole", 50_000),
    alone("ddpg", "pendulum", 20_000, "rl.warm_up=1_000"),
)

NIGHT = CI

TABLE = table(
    "Other learners", "A3C, REINFORCE, IMPACT, R2D2 and DDPG", __doc__, CI, NIGHT, (0.5, 0.5), "other_",
    claim="they learn; no number is published for these worlds and steps",
)  # fmt: skip
