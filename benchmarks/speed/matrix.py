"""The payoff matrix of Pong players with random weights: everyone against everyone, in worker processes.

A number is the wall time of all games, and decisions that count per second. Games of players that return the ball take
longer: seconds grow with the mean length of a game, decisions per second do not.

    python benchmarks/speed/matrix.py [--players 32] [--games 200] [--workers 2] [--out DIR]
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch
from common import arguments, machine, page, save

from evorl.cluster.core import Cluster
from evorl.cluster.local import Local
from evorl.cluster.processes import Processes
from evorl.matches.players import Player
from evorl.matches.records import Record
from evorl.matches.schedule import games_wanted, play_missing
from evorl.mdp.pong import Pong
from evorl.opponents.play import Matches
from evorl.rl.ppo import PPO
from evorl.training.train import spec

SPREAD = 0.4  # of what is added to initial weights, under which all actions would be equally likely


def player(number: int, world: Pong) -> Player:
    learner = PPO().learner(spec(world), number, torch.device("cpu"))
    learner.theta.add_(SPREAD * torch.randn(len(learner.theta), generator=torch.Generator().manual_seed(number)))
    return Player(f"p{number}", f"{number:04}", learner=learner, form="ppo")


def main() -> None:
    args = arguments(__doc__, players=32, games=200, workers=2)
    facts, world = machine(), Pong()
    matches = Matches(world, tuple(player(number, world) for number in range(args.players)), 0, False)
    cluster: Cluster = Processes(workers=args.workers) if args.workers > 1 else Local()
    with tempfile.TemporaryDirectory() as place:
        record = Record(Path(place), {})
        began = time.perf_counter()
        play_missing(matches, record, games_wanted(args.games, None), cluster)
        seconds = time.perf_counter() - began
        record.close()
    steps = sum(map(sum, record.lengths.values()))
    games = sum(map(len, record.lengths.values()))
    numbers = {"seconds": seconds, "games": games, "length": steps / games, "rate": 2 * steps / seconds}
    shown = [f"{seconds:.1f}", f"{games:,}", f"{steps / games:.0f}", f"{numbers['rate']:,.0f}"]
    header = ["players", "workers", "seconds", "games", "mean length", "decisions/s"]
    rows = [[str(args.players), str(args.workers), *shown]]
    save(args.out, facts, page("A payoff matrix of Pong", __doc__, header, rows), {"cases": [numbers]})


if __name__ == "__main__":
    main()
