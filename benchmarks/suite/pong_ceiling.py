"""A yardstick for Pong, no upper bound: a player that knows the rules against the rule player.

It forecasts the ball exactly, waits in the middle, meets the ball with a moving bat, and so plays what the rules allow
except for tactics. What it loses is mostly balls that nobody can hit: in the step in which a ball reaches the bat's
plane a wall comes first ("the first of these that holds, and only it"), so a ball in the corner passes the bat.

    python benchmarks/suite/pong_ceiling.py [--games 2000]
"""

from __future__ import annotations

import argparse

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.pong.rules import (
    BALL,
    MIDDLE_X,
    MIDDLE_Y,
    SIZE,
    TO_BAT,
    TO_EDGE,
    TOP,
    Games,
    Rules,
    advance,
    rule_moves,
)
from evorl.util.seed import Episodes

FAR = 60  # steps: longer than any flight


def forecast(rules: Rules, games: Games, side: int) -> tuple[Array, Array, Array]:
    """Steps until the ball reaches this side's bat (FAR when it flies away), where, and whether it can be hit there."""
    x, y, vx, vy = games.x.copy(), games.ball.copy(), games.vx, games.vy.copy()
    left = np.full(len(x), FAR)
    where, hittable = np.full(len(x), MIDDLE_Y), np.zeros(len(x), bool)
    comes = (vx > 0) == (side == 1)
    for step in range(1, FAR):
        before = y
        gap = np.copysign(TO_BAT, vx) + MIDDLE_X - x
        x, y = x + vx, np.trunc(y + vy)
        wall = (np.abs(y - MIDDLE_Y) >= TO_EDGE) & ((y - MIDDLE_Y) * vy > 0)
        away = np.abs(x - MIDDLE_X)
        arrives = comes & (left == FAR) & (away >= TO_BAT) & (away < TO_BAT + rules.ball_speed)
        left[arrives], hittable[arrives] = step, ~wall[arrives]
        where[arrives] = (gap / vx * vy + before)[arrives]
        y = np.where(wall, np.copysign(TO_EDGE, vy) + MIDDLE_Y, y)
        vy = np.where(wall, -vy, vy)
    return left, where, hittable


def knowing_moves(rules: Rules, games: Games, side: int) -> tuple[Array, Array, Array]:
    """The knowing player's moves; with them, where the ball is about to reach its bat and cannot be hit."""
    left, where, hittable = forecast(rules, games, side)
    bat, speed = games.bats[side], rules.bat_speed
    spin = np.where(games.vy >= 0, 1.0, -1.0)  # the last step adds to the ball's speed
    middle = TOP + SIZE / 2 - rules.bat_height / 2
    aim = np.where(left == FAR, middle, where - (rules.bat_height - BALL) / 2 - speed * spin)
    ahead = aim - bat
    moves = np.where(np.abs(ahead) >= speed / 2, np.sign(ahead) * speed, 0.0)
    meets = np.abs(bat + speed * spin + (rules.bat_height - BALL) / 2 - where) < (rules.bat_height + BALL) / 2
    moves = np.where((left == 1) & meets, speed * spin, moves)
    return moves, left == 1, hittable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=2000)
    count, rules = parser.parse_args().games, Rules()
    for side, name in enumerate(("left", "right")):
        games = Games(rules, Episodes(0, "ceiling")(np.arange(count), 0))
        moves, lead, lost, hopeless = np.zeros((2, count)), np.zeros(count), 0, 0
        doomed, playing = np.zeros(count, bool), np.ones(count, bool)
        while playing.any():
            rule_moves(rules, games, moves)
            moves[side], reaches, hittable = knowing_moves(rules, games, side)
            doomed[reaches] = ~hittable[reaches]
            ended, winner = advance(rules, games, moves)
            points = winner * (1 if side == 0 else -1) * playing[ended]
            lead[ended] += points
            lost += int((points < 0).sum())
            hopeless += int((doomed[ended] & (points < 0)).sum())
            over = games.round >= rules.rounds
            playing[over], games.round[over] = False, 0  # it plays on unseen
        print(
            f"{name}: mean score {lead.mean():+.2f} of {rules.rounds} over {count} games; it lost "
            f"{lost / count / rules.rounds:.1%} of the rounds, {hopeless / lost:.0%} of those to balls nobody can hit"
        )


if __name__ == "__main__":
    main()
