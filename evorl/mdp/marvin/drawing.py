"""Drawing of Marvin with pygame: a white robot under an evening sky, drawn at twice the size and scaled down.

Arms, face and lamps exist in the drawing only, not in the physics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled

from evorl.mdp.core import Array
from evorl.mdp.marvin.body import (
    FOOT,
    GOAL,
    HEAD_AT,
    HEAD_RADIUS,
    HIP,
    KNEE,
    LEG,
    PEAR,
    SCALE,
    SHIN,
    STEP,
    THIGH,
    Body,
    Point,
)
from evorl.util import command

try:
    pygame: Any = import_module("pygame")
except ImportError as error:
    raise DependencyNotInstalled(f"pygame is not installed: {command.install('box2d')}") from error

WIDTH, HEIGHT = 600, 400
FINE = 2  # supersampling factor
LEFT = WIDTH / 5  # x of the trunk in the picture

Colour = tuple[int, int, int]
SKY_HIGH, SKY_LOW, MOON, STAR = (58, 44, 98), (196, 150, 190), (250, 238, 222), (226, 216, 244)
FAR, NEAR = (142, 110, 164), (112, 92, 148)  # hills
GROUND, TURF = (86, 104, 128), (148, 170, 190)
WHITE, SHADE, DIM, LINE = (246, 247, 250), (214, 219, 230), (176, 184, 204), (58, 62, 84)
VISOR, EYE, GLOW, LAMP = (38, 44, 66), (104, 232, 220), (230, 255, 250), (255, 160, 84)


class Canvas:
    """A surface in world units: pixels of the final picture, y up, x = 0 at the world's left edge."""

    def __init__(self, scroll: float) -> None:
        self.surface = pygame.Surface((WIDTH * FINE, HEIGHT * FINE))
        self.scroll = scroll

    def at(self, points: Iterable[Point], part: Any = None) -> list[Point]:
        """Return surface coordinates of points of the world, or of a part of the body."""
        if part is not None:
            (x0, y0), sin, cos = part.position * SCALE, math.sin(part.angle), math.cos(part.angle)
            points = [(x0 + cos * x - sin * y, y0 + sin * x + cos * y) for x, y in points]
        return [((x - self.scroll) * FINE, (HEIGHT - y) * FINE) for x, y in points]

    def shape(self, points: Iterable[Point], fill: Colour, part: Any = None, line: Colour | None = LINE) -> None:
        placed = self.at(points, part)
        pygame.draw.polygon(self.surface, fill, placed)
        if line is not None:
            pygame.draw.aalines(self.surface, line, True, placed)
            pygame.draw.lines(self.surface, line, True, placed, FINE + 1)

    def stroke(self, points: Sequence[Point], colour: Colour, width: float, part: Any = None) -> None:
        """Draw a line with round ends."""
        placed = self.at(points, part)
        pygame.draw.lines(self.surface, colour, False, placed, round(width * FINE))
        for point in placed:
            pygame.draw.circle(self.surface, colour, point, width * FINE / 2)


def draw(body: Body, heights: Array) -> Any:
    """Return a surface of 600 x 400 centred on the trunk's x; ``heights`` of the ground's columns are in metres."""
    canvas = Canvas(body.trunk.position.x * SCALE - LEFT)
    _sky(canvas)
    _ground(canvas, heights * SCALE)
    _arm(canvas, body, body.joints[2].angle, DIM)
    _leg(canvas, body.legs[:2], DIM)
    _torso(canvas, body.trunk)
    _leg(canvas, body.legs[2:], WHITE)
    _head(canvas, body.trunk)
    _arm(canvas, body, body.joints[0].angle, SHADE)
    return pygame.transform.smoothscale(canvas.surface, (WIDTH, HEIGHT))


def pixels(surface: Any) -> Array:
    """Return a surface as uint8 [H, W, 3]."""
    return np.ascontiguousarray(pygame.surfarray.array3d(surface).transpose(1, 0, 2))


def show(surface: Any, fps: int) -> Any:
    """Show the picture in a window, at most ``fps`` times per second; return the window's surface."""
    pygame.display.init()
    screen = pygame.display.get_surface() or pygame.display.set_mode((WIDTH, HEIGHT))
    screen.blit(surface, (0, 0))
    pygame.event.pump()
    _clock().tick(fps)
    pygame.display.flip()
    return screen


def close() -> None:
    pygame.display.quit()


@cache
def _clock() -> Any:
    return pygame.time.Clock()


# ------------------------------------------------------------------ the surroundings


def _sky(canvas: Canvas) -> None:
    canvas.surface.blit(_evening(), (0, 0))
    for colour, height, wave, speed in ((FAR, 168, 34, 0.15), (NEAR, 132, 26, 0.35)):
        xs = np.arange(0, WIDTH + 10, 10)
        places = (xs + canvas.scroll * speed) / 90
        tops = height + wave * (np.sin(places) + 0.5 * np.sin(2.3 * places + 1))
        hill = [(x * FINE, (HEIGHT - y) * FINE) for x, y in zip(xs.tolist(), tops.tolist(), strict=True)]
        pygame.draw.polygon(canvas.surface, colour, [(0, HEIGHT * FINE), *hill, (WIDTH * FINE, HEIGHT * FINE)])


@cache
def _evening() -> Any:
    """Return the static sky."""
    rows = np.linspace(0, 1, HEIGHT * FINE)[:, None] ** 1.3
    shades = (np.array(SKY_HIGH) * (1 - rows) + np.array(SKY_LOW) * rows).astype(np.uint8)
    surface = pygame.surfarray.make_surface(np.tile(shades, (WIDTH * FINE, 1, 1)))
    for n in range(40):
        place = (n * 0.618034 % 1 * WIDTH * FINE, (n * 0.414214 % 1) ** 1.5 * 0.5 * HEIGHT * FINE)
        pygame.draw.circle(surface, STAR, place, 1 + n % 3 / 2)
    pygame.draw.circle(surface, MOON, (0.8 * WIDTH * FINE, 0.2 * HEIGHT * FINE), 34 * FINE)
    return surface


def _ground(canvas: Canvas, heights: Array) -> None:
    step = STEP * SCALE
    first = max(int(canvas.scroll / step), 0)
    columns = range(first, min(first + int(WIDTH / step) + 3, len(heights)))
    for column, colour in ((3, LAMP), (GOAL, EYE)):
        if column in columns:
            _flag(canvas, column * step, float(heights[column]), colour)
    top = [(column * step, float(heights[column])) for column in columns]
    if len(top) > 1:
        canvas.shape([(top[0][0], 0), *top, (top[-1][0], 0)], GROUND, line=None)
        canvas.stroke(top, TURF, 4)


def _flag(canvas: Canvas, x: float, y: float, colour: Colour) -> None:
    canvas.stroke([(x, y), (x, y + 58)], LINE, 3)
    canvas.shape([(x, y + 58), (x + 30, y + 49), (x, y + 40)], colour)


# ------------------------------------------------------------------ the robot


def _oval(x: float, y: float, width: float, height: float) -> list[Point]:
    """Return an ellipse, given its centre and half axes."""
    return [(x + width * math.cos(n * math.pi / 24), y + height * math.sin(n * math.pi / 24)) for n in range(48)]


def _outline() -> list[Point]:
    """Return the torso's outline: its half widths interpolated and smoothed."""
    ys, wide = zip(*PEAR, strict=True)
    heights = np.linspace(ys[0], ys[-1], 33)
    smooth = np.convolve(np.pad(np.interp(heights, ys, wide), 2, "edge"), [0.1, 0.2, 0.4, 0.2, 0.1], "valid")
    right = list(zip(smooth.tolist(), heights.tolist(), strict=True))
    bottom = [(smooth[0] * math.cos(a), ys[0] + 5 * math.sin(a)) for a in np.linspace(math.pi, 2 * math.pi, 13)[1:-1]]
    return [*bottom, *right, *[(-x, y) for x, y in reversed(right)]]


def _torso(canvas: Canvas, trunk: Any) -> None:
    outline = _outline()
    canvas.shape(outline, SHADE, trunk)
    canvas.shape([(0.86 * x + 2.5, 0.94 * y + 1.5) for x, y in outline], WHITE, trunk, line=None)
    canvas.shape(_oval(11, 4, 8.5, 9), DIM, trunk)
    canvas.shape(_oval(11, 4, 5.5, 6), LAMP, trunk, line=None)
    canvas.shape(_oval(12.5, 6.5, 1.6, 2), GLOW, trunk, line=None)
    canvas.stroke([(-9, 30), (9, 30)], DIM, 4, trunk)  # the collar


def _head(canvas: Canvas, trunk: Any) -> None:
    x, y = HEAD_AT
    canvas.stroke([(x - 7, y + 24), (x - 11, y + 38)], LINE, 2.5, trunk)
    canvas.shape(_oval(x - 11.5, y + 40, 4.5, 4.5), LAMP, trunk)
    canvas.shape(_oval(x, y, HEAD_RADIUS, HEAD_RADIUS), SHADE, trunk)
    canvas.shape(_oval(x + 1.5, y + 2, HEAD_RADIUS - 3.5, HEAD_RADIUS - 3.5), WHITE, trunk, line=None)
    canvas.shape(_oval(x + 7, y + 1, 17.5, 12.5), VISOR, trunk)
    for eye, wide in ((x + 1, 4.4), (x + 15, 3.6)):
        canvas.shape(_oval(eye, y + 1.5, wide, 6), EYE, trunk, line=None)
        canvas.shape(_oval(eye + 1.2, y + 4, 1.5, 1.9), GLOW, trunk, line=None)
    smile = [
        (x + 8 + 5 * math.cos(a), y - 5 + 2.6 * math.sin(a)) for a in np.linspace(1.15 * math.pi, 1.85 * math.pi, 9)
    ]
    canvas.stroke(smile, EYE, 1.6, trunk)
    canvas.shape(_oval(x - 17, y, 5.5, 7.5), DIM, trunk)
    canvas.shape(_oval(x - 17, y, 2.5, 4), LAMP, trunk, line=None)


def _arm(canvas: Canvas, body: Body, swing: float, colour: Colour) -> None:
    """Draw an arm, which swings with the opposite leg."""
    angle = 0.7 * swing - 0.15
    elbow = (20 * math.sin(angle) - 4, 22 - 20 * math.cos(angle))
    hand = (elbow[0] + 17 * math.sin(angle + 0.6), elbow[1] - 17 * math.cos(angle + 0.6))
    for line, width in ((LINE, 9.5), (colour, 7)):
        canvas.stroke([(-4, 22), elbow, hand], line, width, body.trunk)
    canvas.shape(_oval(hand[0], hand[1], 6.5, 6.5), colour, body.trunk)


def _leg(canvas: Canvas, leg: Sequence[Any], colour: Colour) -> None:
    thigh, shin = leg
    canvas.shape(FOOT, colour, shin)
    canvas.shape(SHIN, colour, shin)
    canvas.shape(THIGH, colour, thigh)
    for part, height, size in ((thigh, LEG / 2 + HIP / 4, 6), (thigh, -KNEE, 5)):
        canvas.shape(_oval(0, height, size, size), SHADE, part)
