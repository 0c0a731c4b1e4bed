"""What a fighter sees: numbers of about [-1, 1], the same layout for both."""

from __future__ import annotations

import math

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.duel.fight import DIRECTIONS, KNIGHT, SKILLS, Fight, Fighter
from evorl.mdp.duel.rules import facing

LONGEST_S = 1.0  # a cast's remaining time is shown in units of this
SIZE = 2 + (7 + len(SKILLS)) + 5 + (6 + len(SKILLS) + len(SKILLS)) + len(DIRECTIONS) + 5 + 2


def observe(fight: Fight, side: int) -> Array:
    """float32 [SIZE]: who I am; me; where the foe is; the foe and its cast; its direction; the nearest arrow; time."""
    me, foe = fight.fighters[side], fight.fighters[1 - side]
    size = fight.ground.size
    dx, dy, gap = foe.x - me.x, foe.y - me.y, fight.distance()
    unit = 1 / gap if gap else 0.0
    casting = [0.0] * len(SKILLS)
    toward = [0.0] * len(DIRECTIONS)
    toward[facing(fight, side)] = 1.0
    if foe.left:
        casting[foe.skill] = 1.0
    return np.array(
        [
            float(side == KNIGHT), float(side != KNIGHT),
            2 * me.x / size - 1, 2 * me.y / size - 1, *_body(fight, me), *me.heading, float(me.skill > 1),
            dx / size, dy / size, gap / size, dx * unit, dy * unit,
            *_body(fight, foe), *casting, foe.left * fight.ground.dt / LONGEST_S, *foe.heading, float(fight.clear()),
            *toward,
            *_arrow(fight, me),
            1 - fight.tick / fight.limit, 1.0 if foe.left == 0 else 0.0,
        ],
        np.float32,
    )  # fmt: skip


def _body(fight: Fight, it: Fighter) -> list[float]:
    """Health, energy and how much of each cooldown is left, as shares."""
    waits = [wait / (cast + pause) for wait, cast, pause in zip(it.ready, it.casts, it.cooldowns, strict=True)]
    return [it.health / it.character.health, it.energy / it.character.energy, *waits]


def _arrow(fight: Fight, me: Fighter) -> tuple[float, float, float, float, float]:
    """The nearest arrow in the air: whether there is one, where it is, where it flies."""
    if not fight.arrows:
        return (0.0, 0.0, 0.0, 0.0, 0.0)
    it = min(fight.arrows, key=lambda arrow: math.hypot(arrow.x - me.x, arrow.y - me.y))
    pace = math.hypot(it.vx, it.vy)
    size = fight.ground.size
    return (1.0, (it.x - me.x) / size, (it.y - me.y) / size, it.vx / pace, it.vy / pace)
