"""What the engine built from source says of a game after a step, and what a side sees of it.

A side sees the field as if it played from left to right: for the right team it is turned by 180 degrees. Coordinates
are those of Google Research Football (Kurach et al. 2020): x from -1 (own goal) to 1, y from -0.42 to 0.42, movements
per step. `simple115` and `picture` are its observations ``simple115v2`` and ``extracted`` (env/wrappers.py,
env/observation_preprocessing.py).
"""

from __future__ import annotations

import math

import numpy as np

from evorl.mdp.core import Array

PLAYERS = 11
FRAME = np.dtype([
    ("places", "<f4", (2, PLAYERS, 2)),  # of the players of both teams
    ("moves", "<f4", (2, PLAYERS, 2)),
    ("count", "<i4", (2,)),  # players of each team; the rows after them are 0
    ("ball", "<f4", (3,)),
    ("ball_move", "<f4", (3,)),
    ("owner", "<i4", (2,)),  # team and player who has the ball, or -1
    ("active", "<i4", (2,)),  # the player whom each side decides for, or -1
    ("score", "<i4", (2,)),
    ("mode", "<i4"),  # 0 normal, kick-off, goal kick, free kick, corner, throw-in, 6 penalty
    ("step", "<i4"),
    ("over", "<i4"),  # 1: the scenario ended the game; 2: its last step was played
])  # fmt: skip
"""A record of the field as the left team sees it."""
GOES_ON, OVER, LATE = 0, 1, 2

SHAPE = (4, 72, 96)
CORNER = np.array([1.0, 1 / 2.25])  # of a picture
FEATURES = (
    *(
        f"{whose} {what} {player} {axis}"
        for whose in ("own", "other")
        for what in ("place", "move")
        for player in range(PLAYERS)
        for axis in "xy"
    ),
    *(f"ball {axis}" for axis in "xyz"),
    *(f"ball move {axis}" for axis in "xyz"),
    *(f"ball of {whose}" for whose in ("nobody", "own team", "other team")),
    *(f"active {player}" for player in range(PLAYERS)),
    *("normal", "kick-off", "goal kick", "free kick", "corner", "throw-in", "penalty"),
)
"""Names of the numbers of `simple115`."""


def seen_by(frame: Array, side: int) -> Array:
    """The record as a side sees it: 0 for the left team, 1 for the right one."""
    if side == 0:
        return frame
    turned = frame.copy()
    turn = np.array([-1, -1, 1], np.float32)
    turned["places"], turned["moves"] = -frame["places"][::-1], -frame["moves"][::-1]
    turned["ball"], turned["ball_move"] = frame["ball"] * turn, frame["ball_move"] * turn
    for name in ("count", "active", "score"):
        turned[name] = frame[name][::-1]
    team, player = frame["owner"]
    turned["owner"] = (1 - team if team >= 0 else -1, player)
    return turned


def simple115(seen: Array) -> Array:
    """The 115 numbers of a record, float32; see `FEATURES`. Numbers of players who are not there are -1."""
    numbers = np.zeros(len(FEATURES), np.float32)
    blocks = numbers[:88].reshape(2, 2, PLAYERS, 2)
    for team, count in enumerate(seen["count"].tolist()):
        blocks[team, 0], blocks[team, 1] = seen["places"][team], seen["moves"][team]
        blocks[team, :, count:] = -1
    numbers[88:91], numbers[91:94] = seen["ball"], seen["ball_move"]
    numbers[94 + 1 + seen["owner"][0]] = 1
    if seen["active"][0] >= 0:
        numbers[97 + seen["active"][0]] = 1
    numbers[108 + seen["mode"]] = 1
    return numbers


def picture(seen: Array) -> Array:
    """Uint8 [4, 72, 96]: 255 where the own team, the other team, the ball and the active player are."""
    image = np.zeros(SHAPE, np.uint8)
    own, other = (seen["places"][team][: seen["count"][team]] for team in (0, 1))
    active = seen["active"][0]
    for layer, points in enumerate(
        (own, other, seen["ball"][None, :2], own[active : active + 1] if active >= 0 else ())
    ):
        if len(points):
            cells = ((points + CORNER) / (2 * CORNER) * SHAPE[:0:-1]).astype(np.int64)
            x, y = np.clip(cells, 0, np.array(SHAPE[:0:-1]) - 1).T
            image[layer, y, x] = 255
    return image


CHECKPOINTS = 10
CHECKPOINT = 0.1


def checkpoints(seen: Array, scored: bool, paid: int) -> tuple[float, int]:
    """The reward ``checkpoints`` of a step, and how many of the 10 a side has been paid for in this game.

    Each pays 0.1 once, when the side's active player has the ball for the first time within 0.99, 0.90, ... 0.19 of the
    other goal; a goal pays those that are left.
    """
    if scored:
        return CHECKPOINT * (CHECKPOINTS - paid), CHECKPOINTS
    if seen["owner"][0] != 0 or seen["owner"][1] != seen["active"][0]:
        return 0.0, paid
    x, y, _ = seen["ball"].tolist()
    distance, before = math.hypot(x - 1.0, y), paid
    while paid < CHECKPOINTS and distance <= 0.99 - 0.8 / (CHECKPOINTS - 1) * paid:
        paid += 1
    return CHECKPOINT * (paid - before), paid
