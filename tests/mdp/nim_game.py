"""Nim: only the side to move is asked, from the first move on. Who takes the last stone wins. ``nim_game.py``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python"))
import evorl_client

STONES = 9
OFFER = {
    "game": "nim", "sides": ["first", "second"], "inputs": [{"name": "stones", "shape": [1]}], "battles": 64,
    "action": {"kind": "discrete", "n": [2]}, "results": ["win"], "repeats": True,
}  # fmt: skip


class Nim:
    def __init__(self, battle):
        self.battle, self.stones, self.asked = battle, STONES, set()
        self.ask(0)

    def ask(self, side):
        self.battle.ask(side, [[float(self.stones)]], cost=1 if side in self.asked else 0)
        self.asked.add(side)

    def act(self, side, action):
        self.stones -= 1 + action
        if self.stones > 0:
            self.ask(1 - side)
            return
        for each in (0, 1):
            self.battle.end(each, [[0.0]], reward=1.0 if each == side else -1.0, results={"win": float(each == side)})


evorl_client.Client(OFFER, Nim).run()
