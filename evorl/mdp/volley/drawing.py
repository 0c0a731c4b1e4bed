"""Drawing of a game of slime volleyball, with Pillow."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from evorl.mdp.core import Array
from evorl.mdp.volley.rules import BALL, FENCE_HEIGHT, FENCE_WIDTH, GROUND, SIZE, SLIME, TOP, Games, Rules

WIDTH, HEIGHT = 480, 240  # pixels; the ball may leave the picture above
SMOOTH = 3  # pixels drawn for one that is shown
SKY, SAND, FENCE, WHITE, BLACK, YELLOW = (
    (24, 30, 44), (92, 84, 78), (176, 150, 110), (250, 250, 246), (16, 18, 24), (250, 204, 62),
)  # fmt: skip
COLOURS = ((240, 122, 58), (74, 150, 236))
SCALE = SMOOTH * WIDTH / SIZE


def draw_game(rules: Rules, games: Games, game: int) -> Array:
    """Draw one game, uint8 [240, 480, 3]: slimes that look at the ball, and the lives that are left above."""
    image = Image.new("RGB", (SMOOTH * WIDTH, SMOOTH * HEIGHT), SKY)
    draw = ImageDraw.Draw(image)

    def point(x: float, y: float) -> tuple[float, float]:
        return (x + SIZE / 2) * SCALE, SMOOTH * HEIGHT - y * SCALE

    def disc(x: float, y: float, radius: float, colour: tuple[int, int, int]) -> None:
        draw.ellipse([point(x - radius, y + radius), point(x + radius, y - radius)], colour)

    x, y = games.ball[:, game].tolist()
    draw.rectangle([point(-SIZE / 2, GROUND), point(SIZE / 2, 0)], SAND)
    draw.rectangle([point(-FENCE_WIDTH / 2, FENCE_HEIGHT), point(FENCE_WIDTH / 2, GROUND)], FENCE)
    disc(0, FENCE_HEIGHT, TOP, FENCE)
    for side, sign in enumerate((-1, 1)):
        at, foot = float(games.x[side, game]), float(games.y[side, game])
        corners = [point(at - SLIME, foot + SLIME), point(at + SLIME, foot - SLIME)]
        draw.pieslice(corners, 180, 360, COLOURS[side])
        eye = at - sign * 0.5 * SLIME, foot + 0.55 * SLIME
        gaze = np.array([x - eye[0], y - eye[1]])
        gaze = gaze / max(float(np.hypot(*gaze)), 1e-9) * 0.18
        disc(*eye, 0.36, WHITE)
        disc(eye[0] + float(gaze[0]), eye[1] + float(gaze[1]), 0.18, BLACK)
        for life in range(int(games.lives[side, game])):
            disc(sign * (SIZE / 2 - 1 - 1.3 * life), HEIGHT * SMOOTH / SCALE - 1, 0.4, COLOURS[side])
    disc(x, y, BALL, YELLOW)
    return np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.BOX))
