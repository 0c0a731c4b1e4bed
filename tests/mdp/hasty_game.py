"""A game in real time that does not wait for evorl: ``hasty_game.py SECONDS [alone]``.

Each battle asks for both sides at once. Side 0 ends so many seconds later, whether it waits for an answer or not.
Side 1 ends with it, or with ``alone`` after it has acted three times. An answer after an end stops it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python"))
import evorl_client

OFFER = {
    "game": "hasty", "sides": ["one", "two"], "inputs": [{"name": "acts", "shape": [1]}], "battles": 16,
    "action": {"kind": "discrete", "n": [2]}, "results": ["fitness"],
}  # fmt: skip
SECONDS, ALONE = float(sys.argv[1]), "alone" in sys.argv


class Hasty:
    def __init__(self, battle):
        self.battle, self.over, self.acts = battle, set(), [0, 0]
        self.ends = time.monotonic() + SECONDS
        playing.append(self)
        for side in battle.players:
            battle.ask(side, [[0.0]])
        self.tick()

    def act(self, side, _):
        assert side not in self.over
        self.acts[side] += 1
        if ALONE and side == 1 and self.acts[1] == 3:
            self.end(1)
        else:
            self.battle.ask(side, [[float(self.acts[side])]], reward=1.0, cost=2)

    def tick(self):
        if time.monotonic() >= self.ends:
            for side in (0,) if ALONE else (0, 1):
                self.end(side)

    def end(self, side):
        if side not in self.over:
            self.over.add(side)
            self.battle.end(side, [[-1.0]], reward=5.0, cost=3, results={"fitness": 7.0 + side})


playing = []
client = evorl_client.Client(OFFER, Hasty)
try:
    while True:
        client.poll(0.01)
        for game in playing:
            game.tick()
        playing = [game for game in playing if len(game.over) < 2]
except evorl_client.Closed:
    pass
