"""Speed of ``mdp=soccer`` beside the football of VMAS: random steps of 256 games at once, on one core.

A step is an advance of one game, with the observations of everybody and the beginnings of new games. ``rule``: one team
moves at random against our middle rule players, or against VMAS's own; ``both``: both teams move at random. Medians
over the rounds, in which the two take turns.

    python benchmarks/speed/soccer.py [--seconds 2.0] [--rounds 5] [--out DIR]
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from common import PEERS, ROOT, Worker, alternate, arguments, machine, median, page, save

from evorl.mdp.core import MultiDiscrete
from evorl.mdp.soccer import Soccer
from evorl.util.seed import Episodes

GAMES = 256
SIZES = (2, 5, 11)
VMAS = ROOT / ".venv-peers" / "vmas"
"""VMAS and the old gym that it imports."""


class Ours:
    """Random steps of our games."""

    def __init__(self, size: int, opponent: str) -> None:
        world = Soccer(team_size=size, opponent="self" if opponent == "both" else "middle", control="player")
        self.arena = world.arena(GAMES * world.sides, Episodes(0))
        self.draw = np.random.default_rng(0)
        assert isinstance(world.spec.action, MultiDiscrete)
        self.choices = world.spec.action.nvec

    def rate(self, seconds: float) -> float:
        """Advances of games per second."""
        steps, began = 0, time.perf_counter()
        while (time_s := time.perf_counter()) - began < seconds:
            slots = self.arena.recv().slots
            actions = self.draw.integers(0, self.choices, (len(slots), len(self.choices)))
            self.arena.send(slots, actions)
            steps += GAMES
        return steps / (time_s - began)


def main() -> None:
    args = arguments(__doc__, seconds=2.0, rounds=5)
    torch.set_num_threads(1)
    facts, results, rows = machine(), dict[str, Any](), list[list[str]]()
    for size in SIZES:
        for opponent, red in (("rule", "ai"), ("both", "random")):
            with ExitStack() as stack:
                peer = stack.enter_context(Worker(PEERS, "vmas_football.py", str(size), red, path=VMAS))
                ours = Ours(size, opponent)
                ours.rate(0.5)  # warm up
                contestants = {"evorl": ours.rate, "vmas": peer.rate}
                contests = {name: lambda _, rate=rate: rate(args.seconds) for name, rate in contestants.items()}
                rates = alternate(contests, range(args.rounds))
            facts |= {"peers": peer.versions}
            own_rate, peer_rate = median(rates["evorl"]), median(rates["vmas"])
            results[f"{size} {opponent}"] = rates
            rows.append([str(size), opponent, f"{own_rate:,.0f}", f"{peer_rate:,.0f}", f"{own_rate / peer_rate:.1f}"])
            head = ["a side", "other team", "evorl, steps/s", "vmas, steps/s", "ratio"]
            save(args.out, facts, page("Soccer", __doc__, head, rows), results)


if __name__ == "__main__":
    main()
