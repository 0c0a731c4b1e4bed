"""Atari's Pong with the settings of conf/tuned, in both protocols of Atari: PPO, V-trace and DQN.

Pictures have 42 x 42 pixels (mdp.size=42), as those of `lamarckian/pong`, since a policy for 84 x 84 has 7 to 15 MB.
With profile=ci each pair has 1,000,000 steps, those of DQN 500,000, and one seed, and an evaluation has 10 episodes:
the table keeps a policy of each pair, and its returns are no measure of a learner. The runs shared a busy machine, so
their seconds say little. DQN draws fewer and fewer of its actions at random over the first 1,000,000 steps
(conf/tuned/atari_dqn.yaml), so it is at its beginning there.

profile=night has three seeds, twice the steps and 20 episodes.
"""

from __future__ import annotations

from benchmarks.suite.arms import Arm, alone
from benchmarks.suite.baselines import table

WORLDS = ("atari", "atari_noframeskip")
STEPS = {"vtrace": 1_000_000, "ppo": 1_000_000, "dqn": 500_000}
SIZE = "mdp.size=42"


def arms(times: int, seeds: tuple[int, ...], episodes: int) -> tuple[Arm, ...]:
    return tuple(
        alone(algorithm, world, times * steps, SIZE)._replace(seeds=seeds, episodes=episodes)
        for algorithm, steps in STEPS.items()
        for world in WORLDS
    )


TABLE = table(
    "Tuned pairs of Atari", "the pairs of conf/tuned on Atari's Pong", __doc__,
    arms(1, (0,), 10), arms(2, (0, 1, 2), 20), (1.9, 12.0), "tuned_atari_",
    claim="none of the returns: with profile=ci they are beginnings, of one run for each pair",
)  # fmt: skip
