"""A live worker for soccer.py, in the peers' environment: random steps of VMAS's football, 256 games at once.

Each request is a number of seconds; the answer is the advances of games and the time they took. Red is played by VMAS's
own players, or also by random ones.

    python vmas_football.py TEAM_SIZE ai|random
"""

from __future__ import annotations

import sys

import torch
from common import serve
from vmas import make_env

GAMES = 256


def main() -> None:
    size, red = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    env = make_env(
        "football", GAMES, "cpu", continuous_actions=False, seed=0, n_blue_agents=size, n_red_agents=size,
        ai_red_agents=red == "ai", max_steps=600,
    )  # fmt: skip
    env.reset()

    def update() -> float:
        actions = [torch.randint(0, 9, (GAMES, 1)) for _ in env.agents]
        done = env.step(actions)[2]
        if bool(done.any()):
            for game in done.nonzero()[:, 0].tolist():
                env.reset_at(game)
        return GAMES

    serve(update, "vmas", "torch")


if __name__ == "__main__":
    main()
