"""Volley learned without its published player: against snapshots (`opponents=pfsp`), beside plain self-play.

As in league_pong.py, with PPO in 256 games and snapshots of every 500,000 steps. *Points ahead*: lives that the
published player has lost more than the policy, of five. Fixed before the runs: more than half of Nash averaging for the
policies that met snapshots, by the lower end of the interval.
"""

from __future__ import annotations

from benchmarks.opponents.arms import SEEDS, TINY, Contest, Size, table
from evorl.reproduction.parts import ALONE, TWO_AT_ONCE

PPO = (
    *("rl.slots=256", "rl.horizon=128", "rl.minibatch=2048", "rl.passes=4", "rl.lr=1e-3", "rl.gamma=0.99"),
    *("rl.entropy_coef=5e-3", "rl.net.hidden=[64,64]"),
)
CONTEST = Contest("volley", "Volley", PPO, 500_000, None)
SIZES = {
    "tiny": Size(2_048, (0, 1), 20, ALONE, (*TINY, "mdp.lives=1", "mdp.time_limit=80", "eval.episodes=4")),
    "ci": Size(10_000_000, SEEDS, 200, TWO_AT_ONCE),
    "paper": Size(50_000_000, tuple(range(10)), 400, TWO_AT_ONCE),
}
TABLE = table(CONTEST, SIZES, {"tiny": 0.01, "ci": 0.6, "paper": 12}, __doc__)
