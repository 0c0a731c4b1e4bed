"""The game of remote.py: sides that observe 16 numbers and choose one of 5, with masks, 1,000 times; nothing else.

``remote_game.py SIDES``
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients" / "python"))
import evorl_client

SIDES, LONGEST = int(sys.argv[1]), 1000
OFFER = {
    "game": "numbers",
    "sides": [f"side {number}" for number in range(SIDES)],
    "inputs": [{"name": "numbers", "shape": [16]}],
    "action": {"kind": "discrete", "n": [5]},
    "masked": True,
    "results": ["fitness"],
    "battles": 1024,
    "repeats": True,
}
SEEN, LEGAL = [[0.5] * 16], [1] * 5


class Numbers:
    def __init__(self, battle):
        self.battle, self.made = battle, [0] * SIDES
        for side in battle.players:
            battle.ask(side, SEEN, LEGAL)

    def act(self, side, action):
        self.made[side] += 1
        if self.made[side] == LONGEST:
            self.battle.end(side, SEEN, LEGAL, 1.0, 1, {"fitness": 1.0})
        else:
            self.battle.ask(side, SEEN, LEGAL, 0.0, 1)


evorl_client.Client(OFFER, Numbers).run()
