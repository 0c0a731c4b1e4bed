"""OpenAI's evolution strategy, CMA-ES, PBT and NSGA-II on classic, MuJoCo and vector worlds.

Beside the two evolution strategies stands ARS of Stable-Baselines3 (sb3-contrib), its only search in the space of
weights: another algorithm, whose policies are linear at the zoo's settings. A step is one of any individual's. The
return is that of the best individual so far, on episodes that selected nothing. PBT trains four PPO learners and
changes their learning rate. NSGA-II has two objectives on Pong, the score and laziness, and one on CartPole. CMA-ES on
Swimmer was declared at first and left out before this table was made; the reason is not recorded.
"""

from __future__ import annotations

from benchmarks.suite.arms import Arm
from benchmarks.suite.baselines import table

OPENAI_ES = ("ec=openai_es", "ec.seeds=fresh", "ec.sigma=0.1", "ec.lr=0.1")
CMA_ES = ("ec=cma_es",)
PBT = ("ec=pbt", "ec.population=4", "+ec.genes.rl.lr={low:1e-4,high:1e-2,log:true}")
NSGA2 = ("ec=nsga2", "ec.population=16")
SHORT = "ec.episodes=5"
SMALL = ("rl.net.hidden=[16]", "ec.population=16", "ec.episodes=1")


def arms(cartpole: int, swimmer: int, pong: int) -> tuple[Arm, ...]:
    """With so many steps of each world."""
    return (
        Arm("openai_es", "cartpole", cartpole, (*OPENAI_ES, SHORT), "ars"),
        Arm("openai_es", "swimmer", swimmer, (*OPENAI_ES, *SMALL), "ars"),
        Arm("openai_es", "pong", pong, (*OPENAI_ES, SHORT), None),
        Arm("cma_es", "cartpole", cartpole, (*CMA_ES, SHORT), "ars"),
        Arm("cma_es", "pong", pong, (*CMA_ES, SHORT), None),
        Arm("pbt", "cartpole", cartpole, (*PBT, f"ec.train_steps={cartpole // 20}"), None),
        Arm("pbt", "pong", pong, (*PBT, f"ec.train_steps={pong // 20}"), None),
        Arm("nsga2", "cartpole", cartpole, (*NSGA2, SHORT), None),
        Arm("nsga2", "pong", pong, (*NSGA2, SHORT, "ec.objectives=[fitness,lazy]"), None),
    )


CI = arms(250_000, 200_000, 2_000_000)
NIGHT = arms(2_000_000, 2_000_000, 26_000_000)

TABLE = table(
    "Evolution", "openai_es, cma_es, pbt and nsga2 on three worlds", __doc__, CI, NIGHT, (0.5, 6.0),
    claim="openai_es and cma_es: not lower than ARS of sb3-contrib at the settings of its zoo, in as many steps",
)  # fmt: skip
