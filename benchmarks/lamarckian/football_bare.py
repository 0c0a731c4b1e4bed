"""A live worker: random steps of as many games of EnvPool's football as training has at once.

Each request is a number of seconds; the answer is the steps and the time they took.

    python football_bare.py SCENARIO GAMES
"""

from __future__ import annotations

import sys
from pathlib import Path

import envpool
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import serve


def main(scenario: str, games: int) -> None:
    pool = envpool.make_gymnasium(f"gfootball/{scenario}-v1", num_envs=games, seed=0)
    draw = np.random.default_rng(0)
    pool.reset()

    def update() -> float:
        pool.step(draw.integers(0, 19, games, np.int32))
        return games

    serve(update, "envpool")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
