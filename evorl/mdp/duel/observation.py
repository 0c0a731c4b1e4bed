"""How a fighter sees the fight: turned so that its foe is straight ahead, the same layout for both sides."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.duel.rules import DIRECTIONS, KNIGHT, SKILLS, Fight, Fighter, Vector

LONGEST_S = 1.0  # a cast's remaining time is shown in units of this
NO_ARROW = (0.0,) * 5
SIZE = 2 + (4 + 2 + len(SKILLS)) + 1 + (2 + len(SKILLS)) + (len(SKILLS) + 4) + 1 + len(NO_ARROW) + 1


def heading(fight: Fight, side: int, direction: int) -> Vector:
    """The unit vector on the field of the direction in which a side sees it: 0 is straight at the foe."""
    (x, y), (ux, uy) = DIRECTIONS[direction], fight.toward(side)
    return x * ux - y * uy, x * uy + y * ux


def observe(fight: Fight, side: int) -> Array:
    """float32 [SIZE], about [-1, 1]: who I am; my place, the field's axis, my body; the gap; the foe's body, its cast
    and where that heads; whether the line is clear; the nearest arrow; time.

    Places and vectors are turned as by the inverse of `heading`.
    """
    me, foe = fight.fighters[side], fight.fighters[1 - side]
    size, (ux, uy) = fight.ground.size, fight.toward(side)

    def turned(x: float, y: float) -> Vector:
        return x * ux + y * uy, y * ux - x * uy

    casting = [0.0] * len(SKILLS)
    if foe.left:
        casting[foe.skill] = 1.0
    return np.array(
        [
            float(side == KNIGHT), float(side != KNIGHT),
            *turned(2 * me.x / size - 1, 2 * me.y / size - 1), ux, uy, *_body(fight, me),
            fight.distance() / size, *_body(fight, foe),
            *casting, float(foe.left == 0), foe.left * fight.ground.dt / LONGEST_S, *turned(*foe.heading),
            float(fight.line_is_clear()), *_arrow(fight, me, turned),
            1 - fight.tick / fight.limit,
        ],
        np.float32,
    )  # fmt: skip


def _body(fight: Fight, it: Fighter) -> list[float]:
    """Health, energy and how much of each cooldown is left, as shares."""
    waits = [
        (ready - fight.tick) / (cast + pause) if ready > fight.tick else 0.0
        for ready, cast, pause in zip(it.ready, it.casts, it.cooldowns, strict=True)
    ]
    return [it.health / it.character.health, it.energy / it.character.energy, *waits]


def _arrow(fight: Fight, me: Fighter, turned: Callable[[float, float], Vector]) -> tuple[float, ...]:
    """The nearest arrow in the air: whether there is one, where it is, where it flies."""
    if not fight.arrows:
        return NO_ARROW
    it = min(fight.arrows, key=lambda arrow: math.hypot(arrow.x - me.x, arrow.y - me.y))
    pace, size = math.hypot(it.vx, it.vy), fight.ground.size
    return (1.0, *turned((it.x - me.x) / size, (it.y - me.y) / size), *turned(it.vx / pace, it.vy / pace))
