"""The tuned pairs of Atari (conf/tuned) on Boxing, in both protocols: ALE/...-v5 and ...NoFrameskip-v4.

With profile=ci the budgets are small, and each pair has one seed: the table shows the beginnings of learning and keeps
a policy of each pair, and its returns are no measure of a learner. Boxing is won by up to 100 points, random actions
draw, and a game always has as many steps, so that the beginnings show. Of Pong, `suite/pixels` has policies that win.

The pictures have 42 x 42 pixels (mdp.size=42), as those of `lamarckian/pong`, since a policy for 84 x 84 has 7 to 15 MB.
An evaluation has 3 games. profile=night has three seeds and runs of 2,000,000 steps.
"""

from __future__ import annotations

from benchmarks.suite.arms import Arm, alone
from benchmarks.suite.baselines import table

WORLDS = ("atari", "atari_noframeskip")
WORDS = ("mdp.game=boxing", "mdp.size=42")
STEPS = {"ppo": 300_000, "vtrace": 300_000, "dqn": 150_000}
"""Of profile=ci, by algorithm."""
NIGHT_STEPS, GAMES = 2_000_000, 3


def arms(night: bool) -> list[Arm]:
    return [
        alone(algorithm, world, NIGHT_STEPS if night else steps, *WORDS)._replace(
            seeds=(0, 1, 2) if night else (0,), episodes=GAMES
        )
        for algorithm, steps in STEPS.items()
        for world in WORLDS
    ]


TABLE = table(
    "Tuned pairs of Atari", "the pairs of conf/tuned on Atari's Boxing", __doc__, arms(night=False), arms(night=True),
    (0.7, 20.0), "atari_", claim="none of the returns: with profile=ci they are beginnings, of one run for each pair",
)  # fmt: skip
