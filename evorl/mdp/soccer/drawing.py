"""Drawing of a game of soccer from above, with Pillow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from evorl.mdp.core import Array
from evorl.mdp.soccer.parameters import Rules
from evorl.mdp.soccer.rules import MODES, PLAY, Games

LONGEST = 640  # pixels of the longer side of the field with its margins
BAR = 28  # height of the strip with the score and the time
SMOOTH = 3  # pixels drawn for one that is shown
AROUND = 2.2  # metres of grass around the lines
GRASS = ((70, 130, 76), (64, 122, 70))
LINE, NET, STRIP, WHITE, SHADOW = (228, 238, 226), (190, 205, 190), (24, 32, 44), (250, 250, 246), (44, 88, 50)
COLOURS = ((64, 110, 222), (226, 86, 70))
STRIPES = 10


def draw_game(rules: Rules, state: Sequence[Array], game: int) -> Array:
    """Draw one game, uint8 [H, W, 3]: score and time above, the field with players and ball below.

    A nose shows where a player looks, a ring that it tackles; a player who recovers from a tackle is dark.
    """
    games = Games(*(x[..., game, :] if x.ndim == 3 or name in ("tackling", "recovery") else x[..., game]
                    for name, x in zip(Games._fields, state, strict=True)))  # fmt: skip
    picture = _Picture(rules)
    picture.field()
    for player in range(2 * rules.team_size):
        picture.player(games, player)
    x, y = games.ball
    picture.disc(x, y, rules.ball.radius + 0.16, SHADOW)
    picture.disc(x, y, rules.ball.radius + 0.1, WHITE)
    picture.strip(games)
    return picture.pixels()


class _Picture:
    """A picture in metres, x to the right and y upward from the middle of the field."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.half, self.side = rules.field.length / 2 + AROUND, rules.field.width / 2 + AROUND
        self.scale = SMOOTH * LONGEST / (2 * max(self.half, self.side))
        self.top = SMOOTH * BAR
        size = round(2 * self.half * self.scale), round(2 * self.side * self.scale) + self.top
        self.image = Image.new("RGB", size, STRIP)
        self.draw = ImageDraw.Draw(self.image)

    def point(self, x: float, y: float) -> tuple[float, float]:
        return (x + self.half) * self.scale, (self.side - y) * self.scale + self.top

    def box(self, x: float, y: float, fill: tuple[int, int, int] | None, outline: tuple[int, int, int] | None) -> None:
        """The box between -x and x, -y and y."""
        self.draw.rectangle([self.point(-x, y), self.point(x, -y)], fill, outline, SMOOTH)

    def disc(self, x: float, y: float, radius: float, fill: tuple[int, int, int] | None, ring: bool = False) -> None:
        corners = [self.point(x - radius, y + radius), self.point(x + radius, y - radius)]
        self.draw.ellipse(corners, None if ring else fill, fill if ring else None, SMOOTH)

    def field(self) -> None:
        f = self.rules.field
        width = 2 * self.half / STRIPES
        for k in range(STRIPES):
            left = k * width - self.half
            self.draw.rectangle([self.point(left, self.side), self.point(left + width, -self.side)], GRASS[k % 2])
        half, side, goal = f.length / 2, f.width / 2, f.goal / 2
        for sign in (-1, 1):
            x, back = sign * half, sign * (half + 1.2)
            self.draw.rectangle([self.point(min(x, back), goal), self.point(max(x, back), -goal)], NET, LINE, SMOOTH)
            area = sign * (half - 0.15 * f.length)
            corners = [self.point(min(x, area), 1.6 * goal), self.point(max(x, area), -1.6 * goal)]
            self.draw.rectangle(corners, None, LINE, SMOOTH)
        self.box(half, side, None, LINE)
        self.draw.line([self.point(0, side), self.point(0, -side)], LINE, SMOOTH)
        self.disc(0, 0, 0.11 * f.length, LINE, ring=True)

    def player(self, games: Games, player: int) -> None:
        radius = self.rules.body.radius + 0.12
        x, y = games.at[:, player]
        red, green, blue = COLOURS[player // self.rules.team_size]
        tackles, busy = games.tackling[player] > 0, games.recovery[player] > 0
        if busy and not tackles:
            red, green, blue = red // 2, green // 2, blue // 2
        self.disc(x + 0.1, y - 0.1, radius, SHADOW)
        self.disc(x, y, radius, WHITE)
        self.disc(x, y, radius - 0.1, (red, green, blue))
        nose = games.view[:, player] * (radius - 0.12)
        self.disc(x + nose[0], y + nose[1], 0.1, WHITE)
        if tackles:
            self.disc(x, y, self.rules.tackle.reach, WHITE, ring=True)

    def strip(self, games: Games) -> None:
        middle = self.image.width / 2
        size = 0.62 * self.top
        mode = "" if games.mode == PLAY else MODES[int(games.mode)]
        self.text(middle - 0.06 * self.image.width, f"{games.score[0]}", size, COLOURS[0])
        self.text(middle + 0.06 * self.image.width, f"{games.score[1]}", size, COLOURS[1])
        self.text(middle, ":", size, WHITE)
        self.text(0.9 * self.image.width, f"{int(games.time) * self.rules.dt:.0f} s", 0.8 * size, WHITE)
        self.text(0.1 * self.image.width, mode, 0.8 * size, COLOURS[int(games.team)])

    def text(self, x: float, words: str, size: float, colour: tuple[int, int, int]) -> None:
        self.draw.text((x, self.top / 2), words, colour, anchor="mm", font_size=size)

    def pixels(self) -> Array:
        size = self.image.width // SMOOTH // 2 * 2, self.image.height // SMOOTH // 2 * 2
        return np.asarray(self.image.resize(size, Image.Resampling.BOX))
