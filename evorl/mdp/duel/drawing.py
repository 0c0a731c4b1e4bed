"""Drawing of the duel from above."""

from __future__ import annotations

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.duel.rules import ARCHER, BLOCK, KNIGHT, ROLL, Fight, Fighter

PIXELS = 240
BAR = 12  # height of the strip with health and energy, above the field
GRASS, STONE, ARROW, HEALTH, ENERGY, CAST = (
    (58, 92, 58),
    (120, 120, 125),
    (250, 240, 200),
    (200, 60, 60),
    (70, 130, 220),
    (255, 255, 255),
)
COLOURS = ((70, 90, 200), (210, 150, 60))


def draw_fight(fight: Fight) -> Array:
    """Draw uint8 [BAR + PIXELS, PIXELS, 3]: pillar, fighters with headings, arrows, bars of health and energy."""
    image = np.zeros((BAR + PIXELS, PIXELS, 3), np.uint8)
    image[BAR:] = GRASS
    scale = PIXELS / fight.ground.size
    ys, xs = np.mgrid[:PIXELS, :PIXELS] / scale
    field, half = image[BAR:], fight.ground.size / 2

    def disc(x: float, y: float, radius: float, colour: tuple[int, int, int]) -> None:
        field[(xs - x) ** 2 + (ys - y) ** 2 <= radius**2] = colour

    disc(half, half, fight.ground.pillar, STONE)
    for side, it in enumerate(fight.fighters):
        guarded = it.left > 0 and it.skill == (BLOCK if side == KNIGHT else ROLL)
        disc(it.x, it.y, fight.ground.body + 0.1, CAST if guarded else COLOURS[side])
        disc(it.x, it.y, fight.ground.body, COLOURS[side])
        if it.left:
            disc(it.x + 0.4 * it.heading[0], it.y + 0.4 * it.heading[1], 0.15, CAST)
    for arrow in fight.arrows:
        disc(arrow.x, arrow.y, 0.15, ARROW)
    for side in (KNIGHT, ARCHER):
        _bars(image, side, fight.fighters[side])
    return image


def _bars(image: Array, side: int, it: Fighter) -> None:
    """Draw one side's bars: the knight's from the left, the archer's from the right."""
    shares = (it.health / it.character.health, HEALTH), (it.energy / it.character.energy, ENERGY)
    for row, (share, colour) in enumerate(shares):
        width = int(share * (PIXELS // 2 - 4))
        columns = slice(0, width) if side == KNIGHT else slice(PIXELS - width, PIXELS)
        image[row * BAR // 2 : (row + 1) * BAR // 2 - 1, columns] = colour
