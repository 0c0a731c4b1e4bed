"""DQN, SAC and TD3 on classic, Box2D and MuJoCo worlds."""

from __future__ import annotations

from benchmarks.suite.arms import learner
from benchmarks.suite.baselines import table

CI = (
    learner("dqn", "cartpole", 50_000),
    learner("dqn", "lunarlander", 50_000),
    learner("sac", "pendulum", 10_000),
    learner("td3", "pendulum", 20_000),
    learner("td3", "halfcheetah", 50_000),
    learner("sac", "halfcheetah", 50_000),
)
NIGHT = (
    learner("dqn", "cartpole", 50_000),
    learner("dqn", "acrobot", 100_000),
    learner("dqn", "lunarlander", 100_000),
    learner("sac", "pendulum", 20_000),
    learner("sac", "halfcheetah", 100_000),
    learner("sac", "hopper", 100_000),
    learner("td3", "pendulum", 20_000),
    learner("td3", "halfcheetah", 100_000),
    learner("td3", "hopper", 100_000),
)

TABLE = table("DQN, SAC and TD3", "DQN, SAC and TD3", __doc__, CI, NIGHT, (4.7, 10.0))
