"""An example: tag, for two sides that decide at their own times. ``python tag.py`` plays it for evorl.

A catcher and a runner move on a torus of 10 x 10 metres. A side chooses a direction and a stride of 1 to 3 ticks, or a
dash of 1 tick at double speed, which it may repeat only after 8 ticks. Time passes while no side decides. The catcher
wins if it comes as near as half a metre; the runner wins if that takes more than 200 ticks.
"""

import math
import random

import evorl_client

SIZE, REACH, TICKS, REST = 10.0, 0.5, 200, 8
SPEEDS = (0.5, 0.4)  # of the catcher and of the runner, metres per tick
STRIDES = ("one", "two", "three", "dash")
OFFER = {
    "game": "tag",
    "sides": ["catcher", "runner"],
    "inputs": [{"name": "view", "shape": [4], "features": ["ahead", "aside", "time left", "rest"]}],
    "action": {"kind": "discrete", "n": [8, 4], "names": [["E", "NE", "N", "NW", "W", "SW", "S", "SE"], list(STRIDES)]},
    "masked": True,
    "results": ["fitness", "win"],
    "battles": 256,
    "repeats": True,
    "rule": True,
    "seconds": 0.1,
}


class Tag:
    """One battle; both sides' places, and when each of them decides next."""

    def __init__(self, battle):
        self.battle, self.draw, self.time = battle, random.Random(battle.seed), 0
        self.places = [[self.draw.uniform(0, SIZE), self.draw.uniform(0, SIZE)] for _ in range(2)]
        self.steps, self.until, self.since, self.rested = [(0.0, 0.0)] * 2, [0, 0], [0, 0], [0, 0]
        self.deciding = set(battle.players)
        for side in battle.players:
            battle.ask(side, self.view(side), self.legal(side))
        self.advance()

    def act(self, side, action):
        self.deciding.discard(side)
        self.move(side, *action)
        self.advance()

    def move(self, side, direction, stride):
        dash = STRIDES[stride] == "dash"
        speed, angle = SPEEDS[side] * (2 if dash else 1), direction * math.pi / 4
        self.steps[side] = speed * math.cos(angle), speed * math.sin(angle)
        self.since[side], self.until[side] = self.time, self.time + (1 if dash else stride + 1)
        if dash:
            self.rested[side] = self.time + REST

    def advance(self):
        """Let time pass until some side has to decide."""
        while not self.deciding:
            for side in range(2):
                if side not in self.battle.players and self.until[side] <= self.time:
                    self.move(side, self.draw.randrange(8), self.draw.randrange(3))
            self.time += 1
            for place, step in zip(self.places, self.steps):
                place[:] = [(x + dx + self.draw.gauss(0, 0.02)) % SIZE for x, dx in zip(place, step)]
            caught = math.hypot(*self.difference(0)) < REACH
            if caught or self.time >= TICKS:
                return self.finish(caught)
            for side in sorted(self.battle.players):
                if self.until[side] <= self.time:
                    self.deciding.add(side)
                    cost = self.time - self.since[side]
                    self.battle.ask(side, self.view(side), self.legal(side), 0.0, cost)

    def finish(self, caught):
        for side in self.battle.players:
            win = float(caught == (side == 0))
            fitness = (1 - self.time / TICKS) if side == 0 else self.time / TICKS
            results, cost = {"fitness": fitness, "win": win}, self.time - self.since[side]
            self.battle.end(side, self.view(side), self.legal(side), 2 * win - 1, cost, results)
        self.deciding = {0, 1}

    def difference(self, side):
        """The way to the other side, the shorter way round."""
        mine, other = self.places[side], self.places[1 - side]
        return [(b - a + SIZE / 2) % SIZE - SIZE / 2 for a, b in zip(mine, other)]

    def view(self, side):
        rest = max(self.rested[side] - self.time, 0) / REST
        return [[*(x / SIZE for x in self.difference(side)), 1 - self.time / TICKS, rest]]

    def legal(self, side):
        return [1] * 8 + [1, 1, 1, int(self.rested[side] <= self.time)]


if __name__ == "__main__":
    evorl_client.Client(OFFER, Tag).run()
