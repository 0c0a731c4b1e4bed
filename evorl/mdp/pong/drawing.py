"""Drawing of a game of Pong with NumPy."""

from __future__ import annotations

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.pong.rules import BALL, BAT_INSET, BAT_WIDTH, SIZE, TOP, Games, Rules

HEIGHT = 210
FRAME, FIELD, LINE = (30, 36, 54), (16, 20, 32), (52, 61, 88)
LEFT, RIGHT, WHITE = (94, 204, 190), (244, 132, 108), (250, 244, 226)
# 3 x 5 pixels, one octal digit per row
DIGITS = (0o75557, 0o26227, 0o71747, 0o71717, 0o55711, 0o74717, 0o74757, 0o71111, 0o75757, 0o75717)
PIXEL = 4  # size of a digit's pixel


def draw_game(rules: Rules, games: Games, game: int) -> Array:
    """Draw one game as uint8 [210, 160, 3]: the score above, the field with bats and ball below."""
    image = np.empty((HEIGHT, SIZE, 3), np.uint8)
    image[:] = FRAME
    image[TOP : TOP + SIZE] = FIELD
    for y in range(TOP + 4, TOP + SIZE, 16):
        _box(image, SIZE // 2 - 1, y, 2, 8, LINE)
    left, right, ball = games.y[:, game].astype(int)
    _box(image, BAT_INSET, left, BAT_WIDTH, rules.bat_height, LEFT)
    _box(image, SIZE - BAT_INSET - BAT_WIDTH, right, BAT_WIDTH, rules.bat_height, RIGHT)
    _box(image, int(games.x[game]), ball, BALL, BALL, WHITE)
    _number(image, int(games.score[0, game]), 40, LEFT)
    _number(image, int(games.score[1, game]), 120, RIGHT)
    return image


def _box(image: Array, x: int, y: int, width: int, height: int, colour: tuple[int, int, int]) -> None:
    image[y : y + height, x : x + width] = colour


def _number(image: Array, number: int, centre: int, colour: tuple[int, int, int]) -> None:
    columns = [np.zeros((5, 1), np.bool_)]
    for digit in str(number):
        rows = np.array([DIGITS[int(digit)] >> shift & 7 for shift in (12, 9, 6, 3, 0)])
        columns += [(rows[:, None] >> np.array([2, 1, 0]) & 1).astype(np.bool_), np.zeros((5, 1), np.bool_)]
    mask = np.concatenate(columns, axis=1).repeat(PIXEL, axis=0).repeat(PIXEL, axis=1)
    y, x = (TOP - len(mask)) // 2, centre - mask.shape[1] // 2
    image[y : y + len(mask), x : x + mask.shape[1]][mask] = colour
