"""A fighter's observation: rotated so that its opponent is straight ahead; the same layout for both sides."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.duel.rules import DIRECTIONS, KNIGHT, SKILLS, Fight, Fighter, Vector

LONGEST_S = 1.0  # unit of a cast's remaining time
NO_ARROW = (0.0,) * 5
_BODY = ("health", "energy", *(f"wait for {skill}" for skill in SKILLS))
FEATURES = (
    *("knight", "archer", "own x", "own y", "view x", "view y", *(f"own {part}" for part in _BODY)),
    *("distance", *(f"other's {part}" for part in _BODY)),
    *(*(f"other does {skill}" for skill in SKILLS), "other is free", "other's time left"),
    *("other's heading x", "other's heading y", "line is clear"),
    *("arrow", "arrow x", "arrow y", "arrow vx", "arrow vy", "time left"),
)
"""What the numbers of an observation are called."""
SIZE = len(FEATURES)


def heading(fight: Fight, side: int, direction: int) -> Vector:
    """Return the field's unit vector of a direction in a side's view; direction 0 is straight at the opponent."""
    (x, y), (ux, uy) = DIRECTIONS[direction], fight.toward(side)
    return x * ux - y * uy, x * uy + y * ux


def observe(fight: Fight, side: int) -> Array:
    """Return float32 [SIZE], about [-1, 1].

    In order: which fighter this is; own position, the view's axis, own body; distance; the opponent's body, its cast
    and the cast's direction; whether the line of sight is clear; the nearest arrow; remaining time. Positions and
    vectors are rotated by the inverse of `heading`.
    """
    fighter, foe = fight.fighters[side], fight.fighters[1 - side]
    size, (ux, uy) = fight.ground.size, fight.toward(side)

    def turned(x: float, y: float) -> Vector:
        return x * ux + y * uy, y * ux - x * uy

    casting = [0.0] * len(SKILLS)
    if foe.left:
        casting[foe.skill] = 1.0
    return np.array(
        [
            float(side == KNIGHT), float(side != KNIGHT),
            *turned(2 * fighter.x / size - 1, 2 * fighter.y / size - 1), ux, uy, *_body(fight, fighter),
            fight.distance() / size, *_body(fight, foe),
            *casting, float(foe.left == 0), foe.left * fight.ground.dt / LONGEST_S, *turned(*foe.heading),
            float(fight.line_is_clear()), *_arrow(fight, fighter, turned),
            1 - fight.tick / fight.limit,
        ],
        np.float32,
    )  # fmt: skip


def _body(fight: Fight, it: Fighter) -> list[float]:
    """Return health, energy and the rest of each cooldown, as shares."""
    waits = [
        (ready - fight.tick) / (cast + pause) if ready > fight.tick else 0.0
        for ready, cast, pause in zip(it.ready, it.casts, it.cooldowns, strict=True)
    ]
    return [it.health / it.character.health, it.energy / it.character.energy, *waits]


def _arrow(fight: Fight, fighter: Fighter, turned: Callable[[float, float], Vector]) -> tuple[float, ...]:
    """Return the nearest flying arrow: whether there is one, its relative position, its direction."""
    if not fight.arrows:
        return NO_ARROW
    nearest = min(fight.arrows, key=lambda arrow: math.hypot(arrow.x - fighter.x, arrow.y - fighter.y))
    pace, size = math.hypot(nearest.vx, nearest.vy), fight.ground.size
    return (
        1.0,
        *turned((nearest.x - fighter.x) / size, (nearest.y - fighter.y) / size),
        *turned(nearest.vx / pace, nearest.vy / pace),
    )
