"""The tuned pairs of Atari (conf/tuned) on Boxing, in both protocols: ALE/...-v5 and ...NoFrameskip-v4.

With profile=ci the budgets are small, and each pair has one seed. The table keeps a policy of each pair, a beginner.
Its returns are no measure of a learner. Boxing is won by up to 100 points, and a game always has as many steps. With
drawn actions, as in training, these beginners draw (0 to 3 points ahead). An evaluation plays the most probable
actions: a beginner repeats one of them, and loses. Of Pong, `suite/pixels` has policies that win.

The pictures have 42 x 42 pixels (mdp.size=42), as those of `lamarckian/pong`, since a policy for 84 x 84 has 7 to 15
MB. An evaluation has 3 games. profile=night has three seeds and runs of 2,000,000 steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.suite.arms import Arm, alone
from benchmarks.suite.baselines import table

PROTOCOLS = ("atari", "atari_noframeskip")
SMALL = {"ppo": 300_000, "vtrace": 300_000, "dqn": 150_000}
LARGE = dict.fromkeys(SMALL, 2_000_000)
GAMES = 3
"""Of an evaluation."""


def arms(steps: Mapping[str, int], seeds: tuple[int, ...]) -> tuple[Arm, ...]:
    """Those of algorithms with so many steps."""
    words = ("mdp.game=boxing", "mdp.size=42")
    every = [alone(algorithm, world, n, *words) for algorithm, n in steps.items() for world in PROTOCOLS]
    return tuple(arm._replace(seeds=seeds, episodes=GAMES) for arm in every)


CI, NIGHT = arms(SMALL, (0,)), arms(LARGE, (0, 1, 2))
TABLE = table(
    "Tuned pairs of Atari", "the pairs of conf/tuned on Atari's Boxing", __doc__, CI, NIGHT, (0.7, 20.0), "atari_",
    claim="none of the returns: with profile=ci they are beginnings, of one run for each pair",
)  # fmt: skip
