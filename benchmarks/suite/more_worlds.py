"""A2C on a MuJoCo world; with profile=night SAC and TD3 on a Box2D one, too.

These worlds the learners lack in the other tables with profile=ci. A2C's settings were chosen with a seed that the
table does not have. Those of SAC and TD3 are the zoo's: the learning rate of SAC falls to 0 over the run.

SAC and TD3 were declared with profile=ci at first, for 30,000 steps, and left out of it while they ran, for want of
time. One run of ours had ended by then with the learning rate that falls, and one before with one that did not.
"""

from __future__ import annotations

from benchmarks.suite.arms import Arm, learner
from benchmarks.suite.baselines import table


def sac(steps: int) -> Arm:
    """With the zoo's learning rate, which falls to 0 over the run."""
    return learner("sac", "lunarlandercontinuous", steps, f"rl.lr={{start:7.3e-4,end:0,steps:{steps}}}")


CI = (learner("a2c", "halfcheetah", 200_000),)
NIGHT = (
    learner("a2c", "halfcheetah", 1_000_000),
    sac(100_000),
    learner("td3", "lunarlandercontinuous", 100_000),
)

TABLE = table(
    "More worlds", "A2C on HalfCheetah, and for a night SAC and TD3 on LunarLanderContinuous", __doc__, CI, NIGHT,
    (1.1, 10.0), "more_",
)  # fmt: skip
