"""Pong learned without its rule player: against snapshots (opponents=pfsp), in a league, and by plain self-play.

Settings are those of `evorl.run mdp=pong` (PPO, conf/tuned/pong_ppo). With PFSP half of the games are against the
policy of the last update, half against snapshots of every million steps, those that win most more often. In self-play
the learner plays both sides, and learns from both: twice the decisions in as many steps. The league (ec=league) has a
main agent, a main exploiter and two league exploiters, each with as many steps as the learner of another arm: in all it
has four times as many. No run meets the rule player but in evaluations, which change nothing. The newest policy counts,
in the league that of the main agent.

*Points ahead*: of the rule player, in 20 rounds, of the policy with drawn actions, at the end. *Score against the
others*: mean share of the points of games, of each seed's policy against all of the other arms. Intervals after ± are
over seeds (Student's t). *Share in Nash averaging*: of an arm's policies, in the mixture over those of all arms that
none of them beats, with an interval by the posterior of the games' results. Fixed before the runs: 10 points ahead in
each of three seeds.
"""

from __future__ import annotations

from benchmarks.opponents.arms import SEEDS, TINY, Contest, Size, table
from evorl.reproduction.parts import ALONE, TWO_AT_ONCE

CONTEST = Contest("pong", "Pong", (), 1_000_000, 10.0, ("pfsp", "league", "self"))
SIZES = {
    "tiny": Size(2_048, (0, 1), 20, ALONE, (*TINY, "mdp.rounds=1", "mdp.round_steps=60", "eval.episodes=4")),
    "ci": Size(26_000_000, SEEDS, 200, TWO_AT_ONCE),
    "paper": Size(26_000_000, tuple(range(10)), 400, TWO_AT_ONCE),
}
TABLE = table(CONTEST, SIZES, {"tiny": 0.02, "ci": 1.6, "paper": 6.0}, __doc__)
